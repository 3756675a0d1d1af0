// Requests to the server, and the configuration of its clients.

import { request } from 'node:https';

import { KubeConfig } from '@kubernetes/client-node';

const GROUP = '/apis/lab.dogwatch.dev/v1';
// A settlement and an advance of the clock are answered within a minute.
const TIMEOUT_MS = 90_000;

/** An answer of the server that is an error; `code` is its HTTP status. */
export class ApiError extends Error {
    constructor(code, message) {
        super(`${code}: ${message}`);
        this.name = 'ApiError';
        this.code = code;
    }
}

/** A configuration whose clients send a user agent of their own. */
export class AgentConfig extends KubeConfig {
    constructor(kubeconfig, userAgent) {
        super();
        this.userAgent = userAgent;
        this.loadFromString(kubeconfig);
    }

    async applySecurityAuthentication(context) {
        await super.applySecurityAuthentication(context);
        if (this.userAgent) context.setHeaderParam('User-Agent', this.userAgent);
    }

    // Watches and streams do not use the method above.
    async applyToHTTPSOptions(options) {
        await super.applyToHTTPSOptions(options);
        if (this.userAgent) options.headers = { ...options.headers, 'User-Agent': this.userAgent };
    }
}

export class Connection {
    constructor(kubeconfig) {
        this.config = new AgentConfig(kubeconfig, 'dogwatch-kit-js');
    }

    /** Sends a request for the group of the lab and returns the answer. */
    async request(method, path, body, media = 'application/json') {
        const options = { method, headers: { Accept: 'application/json', 'Content-Type': media }, timeout: TIMEOUT_MS };
        await this.config.applyToHTTPSOptions(options);
        const url = `${this.config.getCurrentCluster().server}${GROUP}/${path}`;
        const { code, text } = await send(url, options, body === undefined ? undefined : JSON.stringify(body));
        if (code >= 300) throw new ApiError(code, messageOf(text));
        return JSON.parse(text);
    }

    create(plural, kind, name, spec) {
        const metadata = name ? { name } : { generateName: 'kit-' };
        return this.request('POST', plural, { apiVersion: 'lab.dogwatch.dev/v1', kind, metadata, spec });
    }

    /** Lists the objects whose fields have these values. */
    async list(plural, fields = {}) {
        const selector = Object.entries(fields).map(([field, value]) => `${field}=${value}`).join(',');
        const query = selector ? `?fieldSelector=${encodeURIComponent(selector)}` : '';
        return (await this.request('GET', plural + query)).items;
    }
}

function send(url, options, body) {
    return new Promise((resolve, reject) => {
        const sent = request(url, options, (answer) => {
            let text = '';
            answer.setEncoding('utf8');
            answer.on('data', (part) => (text += part));
            answer.on('end', () => resolve({ code: answer.statusCode, text }));
            answer.on('error', reject);
        });
        sent.on('timeout', () => sent.destroy(new Error(`${url} did not answer within ${TIMEOUT_MS} ms`)));
        sent.on('error', reject);
        sent.end(body);
    });
}

/** The message of a Status, or the text itself if it is none. */
function messageOf(text) {
    try {
        return JSON.parse(text).message ?? text;
    } catch {
        return text;
    }
}
