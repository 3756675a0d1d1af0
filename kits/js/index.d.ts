import type { ApiConstructor, ApiType, KubeConfig } from '@kubernetes/client-node';

/** A duration such as "200ms", "10m" or "1h30m". */
export type Duration = string;

/** Which requests a fault is about; entries of a list are alternatives. */
export interface Match {
    verbs?: string[];
    /** Resources such as `pods`, `deployments.apps` or `deployments.apps/status`. */
    resources?: string[];
    namespaces?: string[];
    names?: string[];
    /** User agents with `*` for any text. */
    userAgents?: string[];
    users?: string[];
}

export interface EventMatch {
    types?: Array<'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK'>;
    names?: string[];
}

/** Which of the requests or events that match are hit. */
export interface When {
    skip?: number;
    times?: number;
    every?: number;
    probability?: number;
    seed?: number;
    events?: EventMatch;
}

/** What happens; exactly one member. */
export interface Effect {
    error?: { code?: number; reason?: string; message?: string; retryAfterSeconds?: number };
    delay?: Duration;
    loseAnswer?: Record<string, never>;
    conflictOnce?: { perObject?: boolean };
    cut?: { abruptly?: boolean };
    silence?: Record<string, never>;
    expire?: { form?: 'status' | 'event' };
    withholdBookmarks?: Record<string, never>;
    dropEvents?: EventMatch;
    stale?: { hold: true } | { by: { revisions: number } | { duration: Duration } };
    slow?: { bytesPerSecond: number };
    skipIntermediate?: boolean;
}

export interface FaultSpec {
    /** The default is a generated name. */
    name?: string;
    match?: Match;
    when?: When;
    effect: Effect;
    expect?: { hits: number };
}

export interface FaultStatus {
    hits?: number;
    effect?: string;
    lastHit?: Record<string, unknown>;
    conditions?: Array<{ type: string; status: string; message?: string }>;
}

export interface SettlementSpec {
    /** The default is 200ms. */
    quiet?: Duration;
    /** The default is 30s. */
    timeout?: Duration;
    /** User agents whose watches are waited for. The default is all. */
    clients?: string[];
    ignore?: { resources?: string[]; userAgents?: string[] };
}

export interface SettlementStatus {
    settled: boolean;
    revision: number;
    waited: Duration;
    changes: number;
    unmet?: string[];
    busy?: Record<string, unknown>;
}

export interface ClockStatus {
    now: string;
    next?: { at: string; who: string };
    advanced?: { moments: number; due: Array<{ at: string; who: string }>; complete: boolean };
}

export interface Change {
    time: string;
    revision: number;
    type: 'ADDED' | 'MODIFIED' | 'DELETED';
    group?: string;
    resource: string;
    kind: string;
    namespace?: string;
    name: string;
    uid: string;
    owners?: string[];
    user?: string;
    userAgent?: string;
    manager?: string;
    /** The last revision that a watch had sent to the writer before it wrote. */
    after?: number;
    fields?: Record<string, unknown>;
}

export interface RecordedRequest {
    time: string;
    verb: string;
    code: number;
    group?: string;
    resource?: string;
    namespace?: string;
    name?: string;
    user?: string;
    userAgent?: string;
    latencyMicroseconds: number;
    [field: string]: unknown;
}

export interface Watcher {
    resource: string;
    userAgent?: string;
    since: string;
    lastRevision: number;
    revisionsBehind: number;
    lagMs: number;
    eventsSent: number;
    [field: string]: unknown;
}

/** Values of selectable fields, for instance `{ userAgent: 'my-operator', code: 409 }`. */
export type Fields = Record<string, string | number>;

export interface ForkOptions {
    name?: string;
    /** Forks the past. The default is now. */
    revision?: number;
    /** Runs the built-in controllers in the world. */
    controllers?: boolean;
}

/** A world: `main`, which is the server itself, or one beside it. */
export declare class Lab {
    readonly name: string;
    /** The path of a kubeconfig for other programs. */
    readonly kubeconfig: string;
    readonly clock: Clock;
    /** The configuration of a client. Faults can be limited to a user agent. */
    config(userAgent?: string): KubeConfig;
    client<T extends ApiType>(api: ApiConstructor<T>, userAgent?: string): T;
    /** A world that begins as this one is now. */
    fork(options?: ForkOptions): Promise<World>;
    fault(spec: FaultSpec): Promise<Fault>;
    /** What faults were expected to do and did not do. */
    unmet(): Promise<string[]>;
    /** Keeps the state of the world as it is now. */
    checkpoint(name?: string): Promise<Checkpoint>;
    /** Makes the objects equal to those of a checkpoint. */
    rewind(checkpoint: Checkpoint): Promise<Rewound>;
    /** Waits until nothing is written any more; throws a `NotSettledError` if the time is up before. */
    settle(spec?: SettlementSpec): Promise<SettlementStatus>;
    /** The changes of objects, oldest first. */
    changes(fields?: Fields): Promise<Change[]>;
    /** The changes of an object and of all that it owns, oldest first. */
    timeline(kind: string, name: string, namespace?: string): Promise<Change[]>;
    /** The requests of the recent past. */
    requests(fields?: Fields): Promise<RecordedRequest[]>;
    /** The watches that run now. */
    watchers(fields?: Fields): Promise<Watcher[]>;
}

/** A running server. It has the powers of the lab over `main`. */
export declare class Server extends Lab {
    /** Ends the server. An expectation of a fault in main that was not met is an error. */
    stop(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** A world beside the server. */
export declare class World extends Lab {
    delete(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

export declare class Fault {
    readonly name: string;
    status(): Promise<FaultStatus>;
    /** Counted a moment after a request was hit; `expect` in the fault's spec is exact. */
    hits(): Promise<number>;
    remove(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

export interface Rewound {
    revision: string;
    deleted: number;
    modified: number;
    added: number;
}

export declare class Checkpoint {
    readonly name: string;
    readonly revision: number;
    rewind(): Promise<Rewound>;
    delete(): Promise<void>;
}

/** The time of a world. */
export declare class Clock {
    status(): Promise<ClockStatus>;
    /** The time of the last write of the clock: what a stopped clock shows. */
    now(): Promise<Date>;
    /** Stops the clock, at a later time if one is given. */
    stop(now?: Date | string): Promise<ClockStatus>;
    /** Lets the clock run again, `rate` times as fast as the machine's if a rate is given. */
    run(rate?: number): Promise<ClockStatus>;
    /** Moves a stopped clock; resolves when everything that became due has begun. */
    advance(by: Duration): Promise<ClockStatus>;
    /** Moves a stopped clock to the next moment at which something is due. */
    advanceToNext(): Promise<ClockStatus>;
}

export declare class ApiError extends Error {
    readonly code: number;
}

export declare class NotSettledError extends Error {
    readonly status: SettlementStatus;
}

export interface StartOptions {
    /** Also runs the controllers, the scheduler and simulated nodes in `main`. */
    controllers?: boolean;
    /** More flags of `dogwatch up`. */
    flags?: string[];
}

/** Starts a server with its objects in memory and waits until it is ready. */
export declare function start(options?: StartOptions): Promise<Server>;

/** Returns the path of the program: the value of DOGWATCH, or the program on PATH. */
export declare function find(environment?: Record<string, string | undefined>): string;

/**
 * Makes the body of a test that runs in a world of its own. The test fails if an expectation of a fault was not met.
 * It only needs a runner that awaits the body: node:test, vitest, Jest or Mocha.
 */
export declare function inWorld(
    origin: Lab | Promise<Lab>,
    body: (world: World) => Promise<void>,
    options?: ForkOptions,
): () => Promise<void>;
