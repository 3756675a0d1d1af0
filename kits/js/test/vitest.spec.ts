// The kit with vitest and in TypeScript.

import { CoreV1Api } from '@kubernetes/client-node';
import { start, inWorld, type Server } from 'dogwatch-kit';
import { afterAll, expect, test } from 'vitest';

const server: Promise<Server> = start();
afterAll(async () => (await server).stop());

test('a fault hits a client in its world', inWorld(server, async (world) => {
    const maps = world.client(CoreV1Api, 'looker');
    const fault = await world.fault({
        match: { verbs: ['list'], userAgents: ['looker'] },
        when: { times: 1 },
        effect: { error: { code: 503 } },
        expect: { hits: 1 },
    });
    const list = () => maps.listNamespacedConfigMap({ namespace: 'default' });
    await expect(list()).rejects.toMatchObject({ code: 503 });
    await expect(list()).resolves.toBeDefined();
    await expect.poll(() => fault.hits()).toBe(1);
}));
