// An operator under a conflict, a stale view and a moved clock, with node's test runner.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { CoreV1Api, PatchStrategy, setHeaderOptions } from '@kubernetes/client-node';
import { inWorld, start } from 'dogwatch-kit';

import { NAMESPACE, USER_AGENT, runCopier, unless } from './copier.js';

// Long enough for an operator on a busy machine to act on an event.
const quiet = '1s';

const prepared = prepare();
after(async () => (await prepared).stop());

/** Prepared once; each test gets a fork of it. */
async function prepare() {
    const server = await start();
    const body = { metadata: { name: 'settings', labels: { copy: 'yes' } }, data: { colour: 'red' } };
    await server.client(CoreV1Api).createNamespacedConfigMap({ namespace: NAMESPACE, body });
    return server;
}

/** A test in a world in which the operator runs. */
function operatorTest(name, body) {
    test(name, inWorld(prepared, async (world) => {
        const maps = world.client(CoreV1Api, 'test');
        const stop = await runCopier(world);
        try {
            // Nothing is written until the operator has read, so a settlement would be answered too early here.
            await eventually(async () => (await colour(maps, 'settings-copy')) === 'red');
            await body(world, maps);
        } finally {
            await stop();
        }
    }));
}

async function eventually(condition) {
    for (const deadline = Date.now() + 30_000; !(await condition()); await sleep(20)) {
        assert.ok(Date.now() < deadline, 'the operator did not act in time');
    }
}

async function colour(maps, name) {
    return (await maps.readNamespacedConfigMap({ namespace: NAMESPACE, name }).catch(unless(404)))?.data.colour;
}

function paint(maps, colour) {
    const patch = { namespace: NAMESPACE, name: 'settings', body: { data: { colour } } };
    return maps.patchNamespacedConfigMap(patch, setHeaderOptions('Content-Type', PatchStrategy.MergePatch));
}

operatorTest('a conflict is tried again', async (world, maps) => {
    const conflict = await world.fault({
        match: { verbs: ['update'], resources: ['configmaps'], userAgents: [USER_AGENT] },
        effect: { conflictOnce: {} },
        expect: { hits: 1 },
    });
    await paint(maps, 'green');
    await world.settle({ quiet });
    assert.equal(await colour(maps, 'settings-copy'), 'green');
    assert.equal(await conflict.hits(), 1);
    const refused = await world.requests({ userAgent: USER_AGENT, code: 409 });
    assert.deepEqual(refused.map(({ verb, name }) => [verb, name]), [['update', 'settings-copy']]);
    const changes = await world.changes({ kind: 'ConfigMap', name: 'settings-copy' });
    const updates = changes.filter(({ type }) => type === 'MODIFIED');
    assert.deepEqual(updates.map(({ userAgent }) => userAgent), [USER_AGENT]);
});

operatorTest('a stale view is caught up with', async (world, maps) => {
    const seenByCopier = world.client(CoreV1Api, USER_AGENT);
    const frozen = await world.fault({ match: { userAgents: [USER_AGENT] }, effect: { stale: { hold: true } } });
    await paint(maps, 'green');
    // The watch of the operator is behind on purpose, so only the test's own are waited for.
    await world.settle({ quiet, clients: ['test'] });
    assert.equal(await colour(maps, 'settings'), 'green');
    assert.equal(await colour(seenByCopier, 'settings'), 'red');
    assert.equal(await colour(maps, 'settings-copy'), 'red');
    assert.ok((await frozen.hits()) >= 1);
    await frozen.remove();
    // What was missed is delivered now, and the end of a fault is no write that a settlement waits for.
    await eventually(async () => (await colour(maps, 'settings-copy')) === 'green');
    assert.equal(await colour(seenByCopier, 'settings'), 'green');
});

operatorTest('time moves when the test moves it', async (world, maps) => {
    await world.clock.stop();
    const before = await world.clock.now();
    const { advanced } = await world.clock.advance('10m');
    assert.equal(advanced.complete, true);
    const now = await world.clock.now();
    assert.equal(now - before, 600_000);
    const body = { metadata: { name: 'late', labels: { copy: 'yes' } }, data: { colour: 'blue' } };
    await maps.createNamespacedConfigMap({ namespace: NAMESPACE, body });
    await world.settle({ quiet });
    const copy = await maps.readNamespacedConfigMap({ namespace: NAMESPACE, name: 'late-copy' });
    assert.equal(copy.metadata.creationTimestamp.getTime(), Math.floor(now / 1000) * 1000);
});

operatorTest('a rewind undoes what the operator did', async (world, maps) => {
    const before = await world.checkpoint();
    await paint(maps, 'green');
    await world.settle({ quiet });
    assert.equal(await colour(maps, 'settings-copy'), 'green');
    const { modified } = await world.rewind(before);
    assert.equal(modified, 2);
    await world.settle({ quiet });
    assert.equal(await colour(maps, 'settings'), 'red');
    assert.equal(await colour(maps, 'settings-copy'), 'red');
});
