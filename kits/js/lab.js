// The powers over one world. Durations are texts such as "200ms" or "10m".

import { rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';

import { AgentConfig, ApiError, Connection } from './connection.js';

/** The world was still busy when the time was up; `status` says with what. */
export class NotSettledError extends Error {
    constructor(status) {
        super(`the world is not settled: ${JSON.stringify(status, null, 2)}`);
        this.name = 'NotSettledError';
        this.status = status;
    }
}

/** A world: `main`, which is the server itself, or one beside it. */
export class Lab {
    #text;
    #own;
    #main;

    constructor(name, kubeconfig, text, main) {
        this.name = name;
        this.kubeconfig = kubeconfig;
        this.#text = text;
        this.#own = new Connection(text);
        // Worlds and checkpoints are objects of main, everything else is in the world that it is about.
        this.#main = main ?? this.#own;
        this.clock = new Clock(this.#own);
    }

    config(userAgent) {
        return new AgentConfig(this.#text, userAgent);
    }

    client(api, userAgent) {
        return this.config(userAgent).makeApiClient(api);
    }

    async fork({ name, revision, controllers = false } = {}) {
        const from = { world: this.name, ...(revision !== undefined && { revision }) };
        const made = await this.#main.create('worlds', 'World', name, { from, controllers });
        const kubeconfig = join(dirname(this.kubeconfig), `${made.metadata.name}.kubeconfig`);
        await writeFile(kubeconfig, made.status.kubeconfig, { mode: 0o600 });
        return new World(made.metadata.name, kubeconfig, made.status.kubeconfig, this.#main);
    }

    async fault({ name, ...spec }) {
        const made = await this.#own.create('faults', 'Fault', name, spec);
        return new Fault(this.#own, made.metadata.name);
    }

    async unmet() {
        // The status of a fault is written a moment after a hit; the answer to a settlement counts at once.
        const atOnce = { quiet: '0s', timeout: '0s' };
        return (await this.#own.create('settlements', 'Settlement', undefined, atOnce)).status.unmet ?? [];
    }

    async checkpoint(name) {
        return new Checkpoint(this.#main, await this.#main.create('checkpoints', 'Checkpoint', name, { world: this.name }));
    }

    rewind(checkpoint) {
        return checkpoint.rewind();
    }

    async settle(spec = {}) {
        const { status } = await this.#own.create('settlements', 'Settlement', undefined, spec);
        if (!status.settled) throw new NotSettledError(status);
        return status;
    }

    changes(fields) {
        return this.#statuses('changes', fields);
    }

    async timeline(kind, name, namespace) {
        const changes = await this.changes();
        const isRoot = (change) =>
            change.kind === kind && change.name === name && (!namespace || change.namespace === namespace);
        const known = new Set(changes.filter(isRoot).map(({ uid }) => uid));
        // Until no more are found: an owner may be written after what it owns.
        for (let size = -1; size !== known.size; ) {
            size = known.size;
            const owned = changes.filter(({ owners = [] }) => owners.some((owner) => known.has(owner)));
            owned.forEach(({ uid }) => known.add(uid));
        }
        return changes.filter(({ uid }) => known.has(uid));
    }

    requests(fields) {
        return this.#statuses('requests', fields);
    }

    watchers(fields) {
        return this.#statuses('watchers', fields);
    }

    async #statuses(plural, fields) {
        return (await this.#own.list(plural, fields)).map(({ status }) => status);
    }

    async _deleteWorld() {
        await this.#main.request('DELETE', `worlds/${this.name}`).catch((error) => {
            if (!(error instanceof ApiError) || error.code !== 404) throw error;
        });
        await rm(this.kubeconfig, { force: true });
    }
}

/** A world beside the server. */
export class World extends Lab {
    delete() {
        return this._deleteWorld();
    }

    [Symbol.asyncDispose]() {
        return this.delete();
    }
}

/** A fault that was made. */
export class Fault {
    #connection;

    constructor(connection, name) {
        this.#connection = connection;
        this.name = name;
    }

    async status() {
        return (await this.#connection.request('GET', `faults/${this.name}`)).status ?? {};
    }

    async hits() {
        return (await this.status()).hits ?? 0;
    }

    async remove() {
        await this.#connection.request('DELETE', `faults/${this.name}`);
    }

    [Symbol.asyncDispose]() {
        return this.remove();
    }
}

/** A state of a world that can be returned to. */
export class Checkpoint {
    #main;

    constructor(main, made) {
        this.#main = main;
        this.name = made.metadata.name;
        this.revision = Number(made.status.revision);
    }

    async rewind() {
        return (await this.#main.request('POST', `checkpoints/${this.name}/rewind`, {})).status.lastRewind;
    }

    async delete() {
        await this.#main.request('DELETE', `checkpoints/${this.name}`);
    }
}

/** The time of a world. */
export class Clock {
    #connection;

    constructor(connection) {
        this.#connection = connection;
    }

    async status() {
        return (await this.#connection.request('GET', 'clocks/world')).status;
    }

    async now() {
        return new Date((await this.status()).now);
    }

    stop(now) {
        return this.#write({ mode: 'Stopped', ...(now && { now: now instanceof Date ? now.toISOString() : now }) });
    }

    run(rate) {
        return this.#write(rate ? { mode: 'Scaled', rate } : { mode: 'Real', rate: null, now: null });
    }

    advance(by) {
        return this.#write({ advance: by });
    }

    advanceToNext() {
        return this.#write({ advanceToNext: true });
    }

    async #write(spec) {
        const media = 'application/merge-patch+json';
        return (await this.#connection.request('PATCH', 'clocks/world', { spec }, media)).status;
    }
}
