// Starts a Kubernetes API server for tests and gives each test a world of its own.
//
// - process.js: finds the program, starts and stops it
// - lab.js: the powers over a world
// - connection.js: requests to the server

export { ApiError } from './connection.js';
export { Checkpoint, Clock, Fault, Lab, NotSettledError, World } from './lab.js';
export { Server, find, start } from './process.js';

/**
 * Makes the body of a test that runs in a world of its own. The test fails if an expectation of a fault was not met.
 * It only needs a runner that awaits the body, so it works with node:test, vitest, Jest and Mocha.
 */
export function inWorld(origin, body, options) {
    return async () => {
        const world = await (await origin).fork(options);
        try {
            await body(world);
            const unmet = await world.unmet();
            if (unmet.length > 0) throw new Error(unmet.join('; '));
        } finally {
            await world.delete();
        }
    };
}
