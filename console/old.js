// Runs only in browsers that know no modules.
document.getElementById('app').textContent =
  'This browser is too old for the console. It needs one of the last three years: Firefox, Chromium, Safari or Edge.';
