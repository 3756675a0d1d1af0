// The token of the page: made from the code in the link, kept in this module only, renewed while the page lives.

let token = '';

/** @returns {string} */
export const bearer = () => (token ? `Bearer ${token}` : '');

/**
 * Exchanges the code of the link, which is removed from the address at once. Returns why the page has no token, or nothing.
 * @returns {Promise<string>}
 */
export async function open() {
  const code = /^#code=([0-9a-f]+)/.exec(location.hash)?.[1];
  if (!code) return 'The page was opened without the code of a link, or was loaded again: a code works once, and nothing is kept in the browser.';
  history.replaceState(null, '', location.pathname);
  const refused = await ask({ method: 'POST', body: code, headers: { 'Content-Type': 'application/octet-stream' } });
  return refused && `The link does not work: ${refused}.`;
}

/**
 * @param {RequestInit} request
 * @returns {Promise<string>}
 */
async function ask(request) {
  let answer;
  try {
    answer = await fetch('/console/token', { ...request, cache: 'no-store' });
  } catch {
    return 'the server does not answer';
  }
  if (!answer.ok) return (await answer.text()).trim();
  const { token: issued, seconds } = await answer.json();
  token = issued;
  setTimeout(renew, (seconds * 1000) / 3);
  return '';
}

async function renew() {
  const refused = await ask({ method: 'POST', headers: { Authorization: bearer() } });
  // The old token is good for a while: a server that restarts has time to come back.
  if (refused) setTimeout(renew, 5000);
}
