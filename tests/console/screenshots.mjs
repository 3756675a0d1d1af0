// Pictures of each part, in light and dark, for docs/console.md: `cargo xtask console-screenshots`.
import { mkdirSync, writeFileSync } from 'node:fs';
import { go, launch, open } from './browser.mjs';
import { smaller } from './png.mjs';
import { Server, until } from './server.mjs';

const FOLDER = new URL('../../docs/console/', import.meta.url).pathname;

/** Name, address, and what is done before the picture. */
const PICTURES = [
  ['objects', '#/objects/core/pods', async (page) => { await page.locator('live-table .row', { hasText: 'Running' }).nth(5).waitFor(); }],
  ['object', '#/object/apps/deployments/shop/api', async (page) => { await page.locator('.tree').waitFor(); await page.locator('.events li').first().waitFor(); }],
  ['timeline', '#/timeline/apps/deployments/shop/web', async (page) => {
    await page.getByText('History is whole').waitFor();
    await page.locator('.tick[aria-label*="Deployment web, modified by kubectl"]').first().click();
    await page.getByText('written by kubectl').waitFor();
  }],
  ['loop', '#/loop', async (page) => { await until('rates', async () => /^\d+\.\d$/.test((await page.locator('.loop .value').first().textContent()) ?? '')); }],
  ['lab', '#/lab', async (page) => { await page.locator('td', { hasText: 'conflicts' }).first().waitFor(); }],
  ['learn', '#/learn/2', async (page) => {
    await page.getByRole('button', { name: 'Watch', exact: true }).click();
    await page.locator('.wire', { hasText: 'HTTP 200' }).waitFor();
    await page.getByRole('button', { name: 'Make or change the object' }).click();
    await page.locator('.wire', { hasText: '"type":' }).waitFor();
  }],
  ['past', '#/objects/apps/deployments', async (page) => {
    await page.locator('live-table .row').nth(1).waitFor();
    await page.locator('main').focus();
    for (let index = 0; index < 12; index += 1) await page.keyboard.press('[');
    await page.locator('.rail.past').waitFor();
    await page.locator('live-table .row').nth(1).waitFor();
  }],
];

const server = await Server.start(['--lab', '--nodes', '3']);
const browser = await launch();
try {
  mkdirSync(FOLDER, { recursive: true });
  await server.kubectl('create namespace shop');
  await server.kubectl('-n shop create deployment api --image=shop/api:1.4 --replicas=4');
  await server.kubectl('-n shop create deployment web --image=shop/web:2.0 --replicas=3');
  await server.kubectl('-n shop create deployment a-service-with-a-name-that-is-rather-long --image=shop/long:1 --replicas=2');
  await server.kubectl('-n shop rollout status deployment/web --timeout=60s');
  await server.kubectl('-n shop scale deployment/web --replicas=2');
  await server.kubectl('-n shop rollout status deployment/api --timeout=60s');
  await server.kubectl('-n shop scale deployment/api --replicas=5');
  for (const colorScheme of ['light', 'dark']) {
    const page = await open(browser, await server.console(), { colorScheme, viewport: { width: 1280, height: 760 } });
    await page.locator('main h1').waitFor();
    for (const [name, hash, prepare] of PICTURES) {
      await go(page, hash);
      if (name === 'lab') {
        await page.getByRole('button', { name: 'Make conflicts' }).click();
        await page.getByText('is active').waitFor();
        await server.kubectl('-n shop annotate deployment web --overwrite owner=shop').catch(() => {});
      }
      await prepare(page);
      await page.waitForTimeout(400);
      writeFileSync(`${FOLDER}${name}-${colorScheme}.png`, smaller(await page.screenshot()));
      // The faults of the picture would hit what comes after it.
      if (name === 'lab') await server.kubectl('delete faults --all');
      if (page.troubles.length) throw new Error(page.troubles.join('\n'));
    }
    await page.setViewportSize({ width: 390, height: 760 });
    await go(page, '#/objects/core/pods');
    await page.getByRole('button', { name: 'Back to live' }).click({ timeout: 2000 }).catch(() => {});
    await page.locator('.state[data-state=watching]').waitFor();
    await page.locator('live-table .row', { hasText: 'Running' }).first().waitFor();
    await page.waitForTimeout(400);
    writeFileSync(`${FOLDER}phone-${colorScheme}.png`, smaller(await page.screenshot()));
    await page.context().close();
  }
} finally {
  await browser.close();
  await server.stop();
}
