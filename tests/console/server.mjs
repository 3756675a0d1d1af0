// Starts the built program for a test, and kills it as a crash would.
import { spawn, execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const PROGRAM = process.env.DOGWATCH_BIN ?? 'dogwatch';
/** Only a server that will never start needs so long. */
const START_MS = 60_000;
const KUBECTL = process.env.KUBECTL ?? 'kubectl';

/** Starts a command of the program and waits for the line that `wanted` matches; returns the process and the match. */
function start(args, wanted) {
  const child = spawn(PROGRAM, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  return new Promise((resolve, reject) => {
    let said = '';
    const late = setTimeout(() => {
      child.kill('SIGKILL');
      reject(new Error(`${args[0]} does not start: ${said}`));
    }, START_MS);
    const read = (data) => {
      said += data;
      const found = wanted.exec(said);
      if (!found) return;
      clearTimeout(late);
      resolve({ child, said, found });
    };
    child.stdout.on('data', read);
    child.stderr.on('data', (data) => { said += data; });
    child.on('exit', (code) => reject(new Error(`${args[0]} ended with ${code}: ${said}`)));
  });
}

const ended = (child) => new Promise((resolve) => {
  if (child.exitCode !== null || child.signalCode !== null) resolve();
  else child.once('exit', resolve);
});

export class Server {
  /** @param {string[]} flags of `dogwatch up` */
  static async start(flags = []) {
    const server = new Server();
    server.folder = mkdtempSync(join(tmpdir(), 'console-'));
    server.flags = flags;
    server.others = [];
    await server.up('127.0.0.1:0');
    return server;
  }

  async up(listen) {
    const { child, said } = await start(['up', '--listen', listen, '--data-dir', join(this.folder, 'data'), ...this.flags], /ready in/);
    this.child = child;
    this.url = /url +(\S+)/.exec(said)[1];
    /** The printed link to the page, which works once. */
    this.link = /console +(\S+)/.exec(said)[1];
    this.kubeconfig = join(this.folder, 'data', 'kubeconfig');
  }

  /** Kills it and starts it again at the same address. */
  async killAndRestart() {
    this.child.kill('SIGKILL');
    await ended(this.child);
    await this.up(this.url.replace('https://', ''));
  }

  /** A new link of `dogwatch console`. */
  async console() {
    const { child, found } = await start(['console', '--kubeconfig', this.kubeconfig], /console +(\S+)\n/);
    this.others.push(child);
    return found[1];
  }

  /** The address of `dogwatch proxy`. */
  async proxy() {
    const { child, found } = await start(['proxy', '--port', '0', '--kubeconfig', this.kubeconfig], /serve on (\S+)\n/);
    this.others.push(child);
    return `http://${found[1]}`;
  }

  /** @param {string} line words of a kubectl command @param {string} [input] */
  async kubectl(line, input) {
    const running = promisify(execFile)(KUBECTL, ['--kubeconfig', this.kubeconfig, ...line.split(' ')], { env: { ...process.env, HOME: this.folder }, maxBuffer: 1 << 26 });
    if (input !== undefined) running.child.stdin.end(input);
    return (await running).stdout;
  }

  async stop() {
    for (const child of [...this.others, this.child]) {
      child.kill('SIGKILL');
      await ended(child);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Waits until `check` returns something true. */
export async function until(what, check, timeout = 60_000) {
  const end = Date.now() + timeout;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
