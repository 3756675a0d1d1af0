// A small operator: keeps a copy of every ConfigMap with the label copy=yes.

import { ApiException, CoreV1Api, makeInformer } from '@kubernetes/client-node';

export const NAMESPACE = 'default';
export const USER_AGENT = 'copier';
const LABEL = 'copy=yes';

/** Runs the operator; returns a function that stops it. */
export async function runCopier(world) {
    const config = world.config(USER_AGENT);
    const maps = config.makeApiClient(CoreV1Api);
    const list = () => maps.listNamespacedConfigMap({ namespace: NAMESPACE, labelSelector: LABEL });
    const informer = makeInformer(config, `/api/v1/namespaces/${NAMESPACE}/configmaps`, list, LABEL);
    const failures = [];
    // One after the other, as the queue of a controller does.
    let queue = Promise.resolve();
    const enqueue = (source) => {
        queue = queue.then(() => reconcile(maps, source)).catch((error) => failures.push(error));
    };
    informer.on('add', enqueue);
    informer.on('update', enqueue);
    informer.on('error', (error) => {
        // The end of its watch by `stop` is an error for the informer too.
        if (error?.name !== 'AbortError') failures.push(error);
    });
    await informer.start();
    return async () => {
        await informer.stop();
        await queue;
        if (failures.length > 0) throw failures[0];
    };
}

async function reconcile(maps, source) {
    const name = `${source.metadata.name}-copy`;
    for (;;) {
        const copy = await maps.readNamespacedConfigMap({ namespace: NAMESPACE, name }).catch(unless(404));
        if (!copy) {
            const body = { metadata: { name }, data: source.data };
            await maps.createNamespacedConfigMap({ namespace: NAMESPACE, body });
            return;
        }
        if (JSON.stringify(copy.data) === JSON.stringify(source.data)) return;
        const body = { ...copy, data: source.data };
        // Another client may be faster: take its copy and try again.
        if (await maps.replaceNamespacedConfigMap({ namespace: NAMESPACE, name, body }).catch(unless(409))) return;
    }
}

/** Swallows an error of this code. */
export function unless(code) {
    return (error) => {
        if (error instanceof ApiException && error.code === code) return undefined;
        throw error;
    };
}
