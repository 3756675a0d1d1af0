// The page as a person uses it, against the built program with controllers and nodes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { go, launch, open } from './browser.mjs';
import { Server, until } from './server.mjs';

const AXE = readFileSync(new URL('node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');
let server;
let browser;
/** One page for all tests: nobody opens a new one for each thing to do. */
let page;

before(async () => {
  [server, browser] = await Promise.all([Server.start(['--lab', '--nodes', '3']), launch()]);
  page = await open(browser, server.link);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const rows = (of = page) => of.locator('live-table .space .row:not([hidden])');
const text = (selector) => page.locator(selector).innerText();
const link = (kind, name, part = 'object') => `#/${part}/${kind}/default/${name}`;
const replicas = async () => JSON.parse(await server.kubectl('get deployment web -o json')).spec.replicas;

/** What axe-core finds. Policies of the page allow no foreign script, so it is evaluated from here. */
async function barriers(of, what) {
  await of.evaluate(AXE);
  const { violations } = await of.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
  return violations.map((one) => `${what}: ${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join('\n  ')}`);
}

test('a link works once, and the code is not in the address', async () => {
  await page.getByRole('heading', { name: 'pods' }).waitFor();
  assert.ok(!page.url().includes('code='), page.url());
  const second = await open(browser, server.link);
  await second.getByText('was used already').waitFor();
  assert.match(await second.locator('main').innerText(), /dogwatch console/);
  await second.context().close();
});

test('objects: a Deployment made with kubectl appears, and its pods become Running', async () => {
  await page.getByText('There are no pods yet.').waitFor();
  await server.kubectl('create deployment web --image=nginx --replicas=3');
  await until('three running pods', async () => (await rows().allInnerTexts()).filter((row) => row.includes('Running')).length === 3);
  await until('the count', async () => /^3$/.test(await text('nav a[href="#/objects/core/pods"] .count')));
  assert.equal(await text('.title .total'), '3 objects');
});

test('objects: filters are sent to the server', async () => {
  const asked = page.waitForRequest((request) => request.url().includes('labelSelector=app%3Dother'));
  await page.keyboard.press('/');
  await page.keyboard.type('ns:default app=other');
  await asked;
  await page.getByText('Nothing matches the filter.').waitFor();
  await page.locator('#filter').fill('status.phase=Running');
  await until('the pods', async () => (await rows().count()) === 3);
  assert.match(await text('.sent'), /fieldSelector=status.phase=Running/);
  await page.locator('#filter').fill('app=-wrong-');
  await page.locator('.trouble', { hasText: 'unable to parse' }).waitFor();
  await page.locator('#filter').fill('');
  await until('all pods', async () => (await rows().count()) === 3);
});

test('objects: columns have room for their names, also where all values are short', async () => {
  await go(page, '#/objects/core/namespaces');
  await until('the rows', async () => (await rows().count()) >= 4);
  await server.kubectl('create configmap x');
  await go(page, '#/objects/core/configmaps');
  await page.locator('#filter').fill('ns:default x');
  await until('the row', async () => (await rows().count()) === 1);
  const widths = await page.locator('live-table .head [role=columnheader]').evaluateAll((heads) => heads.slice(1).map((head) => head.scrollWidth <= head.clientWidth && head.clientWidth > 20));
  assert.ok(widths.length >= 3 && widths.every(Boolean), widths.join());
  await page.locator('#filter').fill('');
});

test('keys: the palette of kinds, moving, opening, help', async () => {
  await page.locator('live-table .scroller').focus();
  await page.keyboard.press(':');
  await page.keyboard.type('deploy');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'deployments' }).waitFor();
  await until('the row', async () => (await rows().count()) === 1);
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'web', exact: true }).waitFor();
});

test('one object: owners of fields, conditions, tree, events', async () => {
  await page.locator('.legend', { hasText: 'kubectl-create' }).waitFor();
  const line = page.locator('.line', { hasText: 'replicas: 3' }).first();
  assert.match(await line.locator('.owner').getAttribute('title'), /kubectl-create \(Update/);
  await page.locator('.conditions', { hasText: 'Available: True' }).waitFor();
  await page.locator('.events', { hasText: 'ScalingReplicaSet' }).waitFor();
  await until('three pods in the tree', async () => (await page.locator('.tree small', { hasText: 'Pod' }).count()) === 3);
});

test('one object: scale, restart, and the change is marked', async () => {
  await page.getByLabel('Replicas').fill('4');
  await page.getByRole('button', { name: 'Scale' }).click();
  await page.getByText('Scaled to 4.').waitFor();
  await page.locator('.line.added, .line:not(.removed)', { hasText: 'replicas: 4' }).first().waitFor();
  assert.equal(await replicas(), 4);
  await page.getByRole('button', { name: 'Restart' }).click();
  await page.locator('.line', { hasText: 'restartedAt' }).first().waitFor();
});

test('one object: a conflict of server-side apply names the owner, and is resolved', async () => {
  await server.kubectl('apply --server-side --force-conflicts --field-manager=team-a -f -', JSON.stringify({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web', namespace: 'default' }, spec: { replicas: 4 } }));
  await page.locator('.legend', { hasText: 'team-a' }).waitFor();
  await page.keyboard.press('a');
  const area = page.locator('.editor textarea');
  await area.fill((await area.inputValue()).replace('replicas: 4', 'replicas: 2'));
  await page.locator('.editor').getByRole('button', { name: 'Apply', exact: true }).click();
  await page.locator('.editor .trouble', { hasText: '409 Conflict' }).waitFor();
  assert.match(await text('.editor tbody'), /\.spec\.replicas\s+team-a/);
  assert.equal(await replicas(), 4);
  await page.getByRole('button', { name: 'Take these fields over' }).click();
  await page.getByText('are now those of dogwatch-console').waitFor();
  assert.equal(await replicas(), 2);
});

test('one object: an edit of an old version is refused as the server says it, and begins again', async () => {
  await until('quiet', async () => JSON.parse(await server.kubectl('get deployment web -o json')).status.readyReplicas === 2);
  await page.keyboard.press('e');
  const area = page.locator('.editor textarea');
  const old = await area.inputValue();
  await server.kubectl('label deployment web edited=meanwhile');
  await area.fill(old.replace('replicas: 2', 'replicas: 5'));
  await page.getByRole('button', { name: 'Update' }).click();
  await page.locator('.editor .trouble', { hasText: 'the object has been modified' }).waitFor();
  await until('the new version', async () => {
    await page.getByRole('button', { name: 'Start again from the new version' }).click({ timeout: 1000 }).catch(() => {});
    return (await area.inputValue()).includes('edited: meanwhile');
  });
  await area.fill((await area.inputValue()).replace('replicas: 2', 'replicas: 3'));
  await page.getByRole('button', { name: 'Update' }).click();
  await page.getByText('Updated.').waitFor();
  assert.equal(await replicas(), 3);
});

test('secrets are hidden until asked for', async () => {
  await server.kubectl('create secret generic door --from-literal=password=hunter2');
  await go(page, link('core/secrets', 'door'));
  await page.locator('.line', { hasText: 'hidden, 7 bytes' }).waitFor();
  assert.ok(!(await text('.yaml')).includes('aHVudGVyMg=='));
  await page.getByRole('button', { name: 'Show values' }).click();
  await page.locator('.line', { hasText: 'aHVudGVyMg==' }).waitFor();
});

test('one object: delete asks first', async () => {
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('The object was deleted.').waitFor();
});

test('timeline: lanes of all that is owned, with their writers, and the diff of a tick', async () => {
  await go(page, link('apps/deployments', 'web', 'timeline'));
  await page.getByText('History is whole').waitFor();
  const writers = await text('.legend');
  for (const writer of ['kubectl-create', 'team-a', 'dogwatch-console', 'kubelet']) assert.ok(writers.includes(writer), `${writer} in ${writers}`);
  const lanes = await page.locator('.lanes .label').allInnerTexts();
  assert.equal(lanes[1], 'Deployment web');
  assert.equal(lanes.filter((lane) => lane.startsWith('ReplicaSet')).length, 2, lanes.join());
  assert.ok(lanes.filter((lane) => lane.startsWith('Pod')).length >= 5, lanes.join());
  const tick = page.locator('.tick[aria-label*="Deployment web, modified by team-a"]').first();
  await tick.focus();
  await page.keyboard.press('Enter');
  await page.getByText('written by team-a').waitFor();
});

test('timeline: scrubbing back shows the old replica count, and live brings it back', async () => {
  const first = page.locator('.tick[aria-label*="Deployment web, added by kubectl-create"]').first();
  const revision = await first.getAttribute('data-revision');
  await first.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Show the cluster as of this revision' }).click();
  assert.equal(await text('.rail .number'), revision);
  await go(page, '#/objects/apps/deployments');
  await until('the old table', async () => (await rows().allInnerTexts()).some((row) => /web\s+0\/3/.test(row)));
  await go(page, link('apps/deployments', 'web'));
  await page.locator('.line', { hasText: 'replicas: 3' }).first().waitFor();
  await page.getByText('This is the past').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Delete' }).count(), 0);
  await go(page, '#/objects/core/pods');
  await page.getByText('There are no pods at this revision.').waitFor();
  await page.getByRole('button', { name: 'Back to live' }).click();
  await until('the pods of now', async () => (await rows().count()) === 3);
});

test('the loop: numbers of the running server', async () => {
  await go(page, '#/loop');
  await until('rates', async () => /^\d+\.\d$/.test((await page.locator('.loop .value').first().textContent()) ?? ''));
  const values = await page.locator('.loop .value').allTextContents();
  assert.ok(Number(values[3]) > 100, `the revision in ${values}`);
  assert.ok(Number(values[5]) > 10, `watches in ${values}`);
  await page.locator('.plain-table', { hasText: 'deployments.apps' }).first().waitFor();
});

test('the loop: the queues of the controllers, live', async () => {
  const cell = (controller, column) => page.locator(`tr[data-queue="${controller}"] td`).nth(column);
  await cell('deployment', 4).waitFor();
  const added = Number(await cell('deployment', 4).innerText());
  assert.ok(added > 0, 'the deployment was worked on');
  assert.match(await page.locator('.loop').innerHTML(), /queued keys.*keys in work/s);
  await server.kubectl('annotate deployment web touched=yes --overwrite');
  await server.kubectl('scale deployment web --replicas=3');
  await server.kubectl('label deployment web touched=yes --overwrite');
  await until('another key in the queue', async () => Number(await cell('deployment', 4).innerText()) > added);
  for (const column of [1, 2, 3]) assert.match(await cell('nodes', column).innerText(), /^\d+$/, `column ${column} of the nodes`);
});

test('the loop: without metrics of queues there is no table of them', async () => {
  await page.route('**/metrics', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: (await answer.text()).replaceAll(/^(# \w+ )?(dogwatch_)?workqueue_.*\n/gm, '') });
  });
  await page.locator('.queues').waitFor({ state: 'hidden' });
  // A request under way is answered before its route goes.
  await page.unrouteAll({ behavior: 'wait' });
  await page.locator('.queues').waitFor({ state: 'visible' });
});

test('the loop: a watcher is cut and returns', async () => {
  const line = page.locator('tr[data-name]', { hasText: 'deployments' }).filter({ hasText: 'kube-controller-manager' }).first();
  const name = await line.getAttribute('data-name');
  const [resource, client] = await line.locator('td').allInnerTexts();
  const same = () => page.locator('tr[data-name]').evaluateAll((lines, [wanted, of]) => lines.filter((one) => one.cells[0].innerText === wanted && one.cells[1].innerText === of).map((one) => one.dataset.name), [resource, client]);
  const before = await same();
  await line.getByRole('button', { name: 'Cut' }).click();
  await until('another watcher in its place', async () => {
    const now = await same();
    return !now.includes(name) && now.some((one) => !before.includes(one));
  });
});

test('lab: a fault is made, hits, and goes', async () => {
  await go(page, '#/lab');
  await page.getByRole('button', { name: 'Make writes-fail' }).click();
  await page.getByText('The fault writes-fail is active.').waitFor();
  const line = page.locator('tr', { hasText: 'writes-fail' }).first();
  await until('a hit', async () => {
    await server.kubectl('annotate deployment web --overwrite hit=me').catch(() => {});
    return Number(await line.locator('td').nth(2).innerText()) > 0;
  });
  await line.getByRole('button', { name: 'Remove' }).click();
  await page.getByText('No fault is active.').waitFor();
});

test('lab: requests as they arrive, filtered by the server', async () => {
  await page.getByLabel('Field selector of requests').fill('verb=delete');
  await server.kubectl('create configmap short-lived');
  await server.kubectl('delete configmap short-lived');
  const lines = page.locator('tr', { hasText: 'default/short-lived' });
  await until('only deletions', async () => {
    const shown = await lines.allInnerTexts();
    return shown.length === 1 && /delete\s+configmaps\s+default\/short-lived\s+200/.test(shown[0]);
  });
});

test('lab: a checkpoint is kept, and a rewind brings a deleted object back', async () => {
  await server.kubectl('create configmap precious --from-literal=a=b');
  await page.getByLabel('Name of a checkpoint').fill('before');
  await page.getByRole('button', { name: 'Keep this revision' }).click();
  await page.getByText('The checkpoint before keeps this revision.').waitFor();
  await server.kubectl('delete configmap precious');
  await page.locator('tr', { hasText: 'before' }).getByRole('button', { name: 'Rewind' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Rewind' }).click();
  await page.getByText('The world is as it was at before.').waitFor();
  assert.equal(JSON.parse(await server.kubectl('get configmap precious -o json')).data.a, 'b');
});

test('lab: a world is forked, and its address is shown', async () => {
  await page.getByLabel('Name of a world').fill('copy');
  await page.getByRole('button', { name: 'Fork this world' }).click();
  const line = page.locator('tr', { hasText: '/worlds/copy' });
  await line.waitFor();
  assert.match(await server.kubectl(`--server ${server.url}/worlds/copy get configmap precious -o name`), /configmap\/precious/);
  await line.getByRole('button', { name: 'Remove' }).click();
  await page.getByText('There is no world beside this one.').waitFor();
});

test('lab: the clock stops, moves and runs on', async () => {
  const press = async (name, says) => {
    await page.getByRole('button', { name, exact: true }).click();
    await page.getByText(says).waitFor();
  };
  const clock = async () => JSON.parse(await server.kubectl('get clock world -o json'));
  await press('Stop', 'The clock stands.');
  const before = (await clock()).status.now;
  await press('One minute on', 'A minute has passed.');
  const after = await clock();
  assert.equal(after.spec.mode, 'Stopped');
  assert.equal(Date.parse(after.status.now) - Date.parse(before), 60_000);
  await press('Run', 'The clock runs.');
  assert.equal((await clock()).spec.mode, 'Scaled');
});

test('lab: the server says when it is quiet', async () => {
  await page.getByRole('button', { name: 'Wait until it is quiet' }).click();
  await page.getByText(/^(Settled at revision \d+|Not settled) after /).waitFor();
});

test('learn: six lessons, and the server really does it', async () => {
  const press = (name) => page.getByRole('button', { name, exact: true }).click();
  const wire = (what) => page.locator('.wire', { hasText: what }).waitFor();
  await go(page, '#/learn/1');
  await press('Make or change the object');
  await press('List');
  await wire('ConfigMapList');
  await go(page, '#/learn/2');
  await press('Watch');
  await wire('HTTP 200');
  await press('Make or change the object');
  await wire('"type":"MODIFIED"');
  await go(page, '#/learn/3');
  await press('Watch with initial events');
  await wire('k8s.io/initial-events-end');
  await go(page, '#/learn/4');
  await press('Watch');
  await wire('HTTP 200');
  await press('Make or change the object');
  await wire('"type":"MODIFIED"');
  await press('Cut');
  await wire('cut after revision');
  await press('Make or change the object');
  await wire('write');
  await press('Resume');
  await until('the missed event', async () => ((await text('.wire')).match(/"type":"MODIFIED"/g) ?? []).length >= 2);
  await go(page, '#/learn/5');
  await press('Watch from the past');
  await wire('HTTP 410');
  await press('List again');
  await wire('ConfigMapList');
  await go(page, '#/learn/6');
  await press('Make an object');
  await page.locator('.kept', { hasText: 'default/lesson-1' }).waitFor();
  await press('Cut its connection');
  await page.getByText(/1 lists, [2-9] watches/).waitFor();
});

test('the server is killed, and the page resumes without losing rows', async () => {
  await go(page, '#/objects/apps/deployments');
  await until('the row', async () => (await rows().count()) === 1);
  await server.killAndRestart();
  await server.kubectl('create deployment second --image=nginx');
  await until('both rows', async () => (await rows().count()) === 2);
  await page.locator('.state[data-state=watching]').waitFor();
});

test('nothing is wrong for axe-core, in light and dark, wide and narrow', async () => {
  const places = ['#/objects/core/pods', link('apps/deployments', 'web'), link('apps/deployments', 'web', 'timeline'), '#/timeline', '#/loop', '#/lab', '#/learn/6'];
  const found = [];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    for (const hash of places) {
      await go(page, hash);
      await page.locator('main h1').waitFor();
      found.push(...await barriers(page, `${hash} ${colorScheme}`));
    }
  }
  assert.deepEqual(found, [], found.join('\n'));
  await page.setViewportSize({ width: 390, height: 800 });
  for (const hash of places) {
    await go(page, hash);
    await page.locator('main h1').waitFor();
    const [wide, inner] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= inner, `${hash} is ${wide} wide on a phone of ${inner}`);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});

test('the page works through the loopback proxy of dogwatch console', async () => {
  const other = await open(browser, await server.console());
  await until('the pods', async () => (await rows(other).count()) > 0);
  const answer = await other.evaluate(() => fetch('/api/v1/pods').then((one) => one.status));
  assert.equal(answer, 401, 'without the token of the page, the proxy refuses');
  assert.deepEqual(other.troubles, []);
  await other.context().close();
});

test('without JavaScript there is one clear sentence', async () => {
  const plain = await open(browser, server.link, { javaScriptEnabled: false });
  assert.match(await plain.locator('body').innerText(), /needs JavaScript/);
  await plain.context().close();
});

test('nothing broke in the page meanwhile', () => {
  assert.deepEqual(page.troubles, []);
});
