// Finding, starting and stopping the program; worlds.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

import { CoreV1Api } from '@kubernetes/client-node';
import { NotSettledError, find, inWorld, start } from 'dogwatch-kit';

const server = start();
after(async () => (await server).stop());

test('without a program the error names the variable', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kit-'));
    try {
        assert.throws(() => find({ PATH: folder }), /set DOGWATCH to the path of the program/);
        assert.throws(() => find({ DOGWATCH: join(folder, 'missing') }), /DOGWATCH names .*missing/);
        const program = join(folder, 'dogwatch');
        await writeFile(program, '#!/bin/sh\n');
        await chmod(program, 0o755);
        assert.equal(find({ PATH: folder }), program);
    } finally {
        await rm(folder, { recursive: true });
    }
});

test('a server that ends early is an error with its message', async () => {
    const flags = ['--controllers', 'coffee'];
    await assert.rejects(start({ controllers: true, flags }), /ended during its start: .*coffee/s);
});

test('an expectation that is not met is an error of the stop', async () => {
    const own = await start();
    await own.fault({ name: 'never-hit', match: { verbs: ['delete'] }, effect: { delay: '1ms' }, expect: { hits: 1 } });
    assert.deepEqual(await own.unmet(), ['fault never-hit expects 1 hits and has 0']);
    await assert.rejects(own.stop(), /never-hit/);
    assert.equal(existsSync(own.kubeconfig), false);
});

test('an expectation that is not met fails the test of a world', async () => {
    const body = inWorld(server, async (world) => {
        await world.fault({ name: 'never-hit', effect: { delay: '1ms' }, match: { verbs: ['delete'] }, expect: { hits: 2 } });
    });
    await assert.rejects(body(), /fault never-hit expects 2 hits and has 0/);
});

test('worlds do not see each other', inWorld(server, async (world) => {
    const other = await world.fork();
    const body = { metadata: { name: 'only-here' } };
    await other.client(CoreV1Api).createNamespacedConfigMap({ namespace: 'default', body });
    await other.fault({ effect: { error: { code: 503 } } });
    await other.clock.stop();
    const { items } = await world.client(CoreV1Api).listNamespacedConfigMap({ namespace: 'default' });
    assert.ok(!items.some(({ metadata }) => metadata.name === 'only-here'));
    await assert.rejects(world.clock.advance('1m'), /Stopped/);
    await other.delete();
    assert.equal(existsSync(other.kubeconfig), false);
    await assert.rejects(other.fault({ effect: { delay: '1ms' } }));
}));

test('a fault with a wrong spec names the field', inWorld(server, async (world) => {
    await assert.rejects(world.fault({ effect: { nope: {} } }), { code: 422, message: /spec.effect/ });
}));

test('a busy world is not settled', inWorld(server, async (world) => {
    const body = { metadata: { name: 'one' } };
    await world.client(CoreV1Api, 'busy').createNamespacedConfigMap({ namespace: 'default', body });
    await assert.rejects(world.settle({ quiet: '10s', timeout: '100ms' }), NotSettledError);
}));

test('watchers are shown', inWorld(server, async (world) => {
    const { Watch } = await import('@kubernetes/client-node');
    const watch = await new Watch(world.config('looker')).watch('/api/v1/configmaps', {}, () => {}, () => {});
    const [watcher] = await world.watchers({ userAgent: 'looker' });
    assert.equal(watcher.resource, 'configmaps');
    watch.abort();
}));
