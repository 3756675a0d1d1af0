// Debian's Chromium with the page in it.
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const ARGS = ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const MEDIA = { html: 'text/html', css: 'text/css', js: 'text/javascript', svg: 'image/svg+xml' };

/** Time after which a browser that shows no page is ended, and how often another one is tried. */
const [START_MS, STARTS_MAX] = [30_000, 3];

/** Starts a browser that can show a page: on a very busy machine, one in many starts and answers nothing. */
export async function launch() {
  for (let attempt = 1; ; attempt += 1) {
    const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGS });
    let timer;
    const late = new Promise((resolve) => { timer = setTimeout(resolve, START_MS, null); });
    const page = await Promise.race([browser.newPage(), late]);
    clearTimeout(timer);
    if (page) {
      await page.close();
      return browser;
    }
    if (attempt === STARTS_MAX) throw new Error('Chromium starts and shows no page');
    await Promise.race([browser.close(), new Promise((resolve) => { setTimeout(resolve, 5000); })]);
  }
}

/**
 * Opens a link in a window of its own. Errors of the page are collected in `page.troubles`.
 * @param {import('playwright-core').Browser} browser
 * @param {string} link
 * @param {object} options of the window; `before` runs in the page before anything else
 */
export async function open(browser, link, { before, ...options } = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 800 }, ...options });
  if (before) await context.addInitScript(before);
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  page.troubles = [];
  page.on('pageerror', (error) => page.troubles.push(error.stack));
  page.on('console', (message) => { if (/Content Security Policy|Trusted/.test(message.text())) page.troubles.push(message.text()); });
  if (process.env.CONSOLE_FILES) await page.route('**/console/**', fromDisk);
  await page.goto(link);
  return page;
}

/** While one works on the page: its files as they are, with the headers of the program. */
async function fromDisk(route) {
  const path = new URL(route.request().url()).pathname.replace('/console/', '') || 'index.html';
  const file = join('../..', process.env.CONSOLE_FILES, path);
  if (route.request().method() !== 'GET' || !existsSync(file)) return route.continue();
  const response = await route.fetch({ url: new URL('/console/', route.request().url()).href });
  const policy = response.headers()['content-security-policy'];
  return route.fulfill({ body: readFileSync(file), contentType: MEDIA[path.split('.').pop()], headers: { 'Content-Security-Policy': policy } });
}

/** Goes to a part by its address. */
export const go = (page, hash) => page.evaluate((to) => { location.hash = to; }, hash);
