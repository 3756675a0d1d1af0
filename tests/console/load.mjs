// The page with 10 000 pods and 200 changes a second: time to the first rows, and frames while scrolling. `node load.mjs [PODS] [CHANGES]`
import http from 'node:http';
import { launch, open } from './browser.mjs';
import { Server, until } from './server.mjs';

const [pods, changes] = [Number(process.argv[2] ?? 10_000), Number(process.argv[3] ?? 200)];
const SECONDS = 20;
const server = await Server.start(['--no-controllers', '--memory']);
const browser = await launch();
const agent = new http.Agent({ keepAlive: true, maxSockets: 16 });
const base = await server.proxy();

function send(method, path, body, type = 'application/json') {
  return new Promise((resolve, reject) => {
    const request = http.request(base + path, { method, agent, headers: { 'Content-Type': type } }, (answer) => {
      answer.resume();
      answer.on('end', () => (answer.statusCode < 300 ? resolve() : reject(new Error(`${method} ${path}: ${answer.statusCode}`))));
    });
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });
}

try {
  const names = Array.from({ length: pods }, (_, index) => `pod-${String(index).padStart(5, '0')}`);
  const make = async (from) => {
    for (let index = from; index < pods; index += 16) {
      await send('POST', '/api/v1/namespaces/default/pods', { apiVersion: 'v1', kind: 'Pod', metadata: { name: names[index], labels: { app: 'load' } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } });
    }
  };
  await send('POST', '/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'default' } }).catch(() => {});
  await Promise.all(Array.from({ length: 16 }, (_, from) => make(from)));
  const before = () => {
    const look = () => {
      if (document.querySelector('live-table .space .row')) globalThis.firstRows = performance.now();
      else requestAnimationFrame(look);
    };
    look();
  };
  const page = await open(browser, await server.console(), { before });
  await page.locator('live-table .space .row').first().waitFor();
  const first = await page.evaluate(() => globalThis.firstRows);
  await until('all rows', async () => (await page.locator('.title .total').innerText()).startsWith(String(pods)));
  let isDone = false;
  let written = 0;
  const began = Date.now();
  const write = async () => {
    while (!isDone) {
      const due = ((Date.now() - began) / 1000) * changes;
      if (written >= due) await new Promise((resolve) => { setTimeout(resolve, 2); });
      else {
        written += 1;
        const name = names[(written * 7919) % pods];
        await send('PATCH', `/api/v1/namespaces/default/pods/${name}`, { metadata: { annotations: { at: String(written) } } }, 'application/merge-patch+json');
      }
    }
  };
  const writers = Array.from({ length: 8 }, write);
  const frames = await page.evaluate((seconds) => new Promise((resolve) => {
    const box = document.querySelector('live-table .scroller');
    const times = [];
    const start = performance.now();
    const step = (now) => {
      times.push(now);
      box.scrollTop = (box.scrollTop + 40) % (box.scrollHeight - box.clientHeight);
      if (now - start < seconds * 1000) requestAnimationFrame(step);
      else resolve(times);
    };
    requestAnimationFrame(step);
  }), SECONDS);
  isDone = true;
  await Promise.all(writers);
  const gaps = frames.slice(1).map((time, index) => time - frames[index]).sort((a, b) => a - b);
  const at = (part) => gaps[Math.floor(gaps.length * part)].toFixed(1);
  console.log(JSON.stringify({ pods, firstRowsMs: Math.round(first), framesPerSecond: ((frames.length - 1) / ((frames.at(-1) - frames[0]) / 1000)).toFixed(1), frameMsMedian: at(0.5), frameMs95: at(0.95), frameMs99: at(0.99), changesPerSecond: (written / SECONDS).toFixed(0) }));
} finally {
  await browser.close();
  await server.stop();
}
