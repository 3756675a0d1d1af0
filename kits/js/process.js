// Finds, starts and stops the program.

import { spawn } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

import { Lab } from './lab.js';

// Far longer than a start takes, so that only a hang reaches it.
const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
/** Bytes of the messages of the server that an error has at most. */
const TAIL = 4096;
/** The exit code of a server with faults that did not hit as often as they were expected to. */
const UNMET = 3;

/** Returns the path of the program: the value of DOGWATCH, or the program on PATH. */
export function find(environment = process.env) {
    const named = environment.DOGWATCH;
    if (named) {
        if (!isProgram(named)) throw new Error(`DOGWATCH names ${named}, which is not a program`);
        return named;
    }
    const folders = (environment.PATH ?? '').split(delimiter).filter(Boolean);
    const found = folders.map((folder) => join(folder, 'dogwatch')).find(isProgram);
    if (!found) {
        throw new Error('dogwatch is not installed: set DOGWATCH to the path of the program, or put it on PATH');
    }
    return found;
}

function isProgram(file) {
    try {
        accessSync(file, constants.X_OK);
        return true;
    } catch {
        return false;
    }
}

/** Starts a server with its objects in memory and waits until it is ready. */
export async function start({ controllers = false, flags = [] } = {}) {
    const program = find();
    const folder = await mkdtemp(join(tmpdir(), 'dogwatch-'));
    const args = ['up', '--memory', '--listen', '127.0.0.1:0', '--lab', '--data-dir', join(folder, 'data')];
    if (!controllers) args.push('--no-controllers');
    const running = new Running(program, [...args, ...flags], folder);
    try {
        await running.ready;
        const kubeconfig = join(folder, 'data', 'kubeconfig');
        return new Server(running, kubeconfig, await readFile(kubeconfig, 'utf8'));
    } catch (error) {
        await running.end();
        throw error;
    }
}

/** A running server. It has the powers of the lab over `main`. */
export class Server extends Lab {
    #running;

    constructor(running, kubeconfig, text) {
        super('main', kubeconfig, text);
        this.#running = running;
    }

    /** Ends the server. An expectation of a fault in main that was not met is an error. */
    async stop() {
        const { code, signal, messages } = await this.#running.end();
        if (code === UNMET) throw new Error(messages);
        if (signal === 'SIGKILL') throw new Error(`dogwatch had to be killed: ${messages}`);
    }

    [Symbol.asyncDispose]() {
        return this.stop();
    }
}

/** The process. */
class Running {
    #process;
    #folder;
    #messages = '';
    #ended;

    constructor(program, args, folder) {
        this.#folder = folder;
        this.#process = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
        // A test that forgets to stop the server still ends, and the server with it.
        this.#process.unref();
        const kill = () => this.#process.kill('SIGKILL');
        process.once('exit', kill);
        this.#process.stderr.setEncoding('utf8').on('data', (text) => {
            this.#messages = (this.#messages + text).slice(-TAIL);
        });
        this.#ended = new Promise((resolve) => {
            const end = (outcome) => {
                process.removeListener('exit', kill);
                resolve(outcome);
            };
            this.#process.once('error', (error) => end({ code: null, signal: null, messages: error.message }));
            this.#process.once('close', (code, signal) => end({ code, signal, messages: this.#messages.trim() }));
        });
        this.ready = this.#awaitReady(program);
        // The caller awaits it, but the process may end before that.
        this.ready.catch(() => {});
    }

    #awaitReady(program) {
        return new Promise((resolve, reject) => {
            const late = () => reject(new Error(`${program} is not ready after ${START_TIMEOUT_MS} ms: ${this.#messages}`));
            const timer = setTimeout(late, START_TIMEOUT_MS);
            let output = '';
            this.#process.stdout.setEncoding('utf8').on('data', (text) => {
                // Goes on reading after the start, so that the server never waits for a reader.
                output = (output + text).slice(-TAIL);
                if (output.includes('ready in ')) {
                    clearTimeout(timer);
                    this.#process.stdout.unref();
                    this.#process.stderr.unref();
                    resolve();
                }
            });
            this.#ended.then(({ messages }) => {
                clearTimeout(timer);
                reject(new Error(`${program} ended during its start: ${messages}`));
            });
        });
    }

    async end() {
        this.#process.ref();
        this.#process.stdout?.ref?.();
        this.#process.stderr?.ref?.();
        this.#process.kill('SIGTERM');
        const timer = setTimeout(() => this.#process.kill('SIGKILL'), STOP_TIMEOUT_MS);
        const outcome = await this.#ended;
        clearTimeout(timer);
        await rm(this.#folder, { recursive: true, force: true });
        return outcome;
    }
}
