// Programs as users of @kubernetes/client-node write them. Each prints what it sees, one line each; the driver
// (tests/blackbox) changes objects meanwhile and reads the lines.

import { PassThrough, Readable, Writable } from 'node:stream';

import * as k8s from '@kubernetes/client-node';

const kubeconfig = new k8s.KubeConfig();
kubeconfig.loadFromDefault();
const v1 = kubeconfig.makeApiClient(k8s.CoreV1Api);
const podsPath = '/api/v1/namespaces/default/pods';

/** List the names, then watch from there. */
async function listThenWatch() {
  const pods = await v1.listNamespacedPod({ namespace: 'default' });
  for (const pod of pods.items) console.log(pod.metadata.name);
  const ended = (error) => {
    console.log('ended', error?.message ?? '');
    process.exit(error ? 1 : 0);
  };
  const from = { resourceVersion: pods.metadata.resourceVersion };
  await new k8s.Watch(kubeconfig).watch(podsPath, from, (type, pod) => console.log(`${type} : ${pod.metadata.name}`), ended);
  console.log('watching');
}

/** The informer keeps a cache and calls back. */
async function informer() {
  const list = () => v1.listNamespacedPod({ namespace: 'default' });
  const pods = k8s.makeInformer(kubeconfig, podsPath, list);
  pods.on('add', (pod) => console.log(`ADDED : ${pod.metadata.name}`));
  pods.on('update', (pod) => console.log(`MODIFIED : ${pod.metadata.name} ${JSON.stringify(pod.metadata.labels ?? {})}`));
  pods.on('delete', (pod) => console.log(`DELETED : ${pod.metadata.name}, ${pods.list('default').length} left`));
  pods.on('error', (error) => console.log('error', error.message));
  await pods.start();
  console.log(`started with ${pods.list('default').length}`);
}

/** An object's life, and the errors a program tells apart. */
async function write() {
  const namespace = 'default';
  const body = { metadata: { name: 'one' }, spec: { containers: [{ name: 'app', image: 'app' }] } };
  const pod = await v1.createNamespacedPod({ namespace, body });
  console.log('created', pod.metadata.name, pod.spec.restartPolicy, pod.status.phase);
  const patch = [{ op: 'add', path: '/metadata/labels', value: { app: 'web' } }];
  const patched = await v1.patchNamespacedPod({ name: 'one', namespace, body: patch });
  console.log('patched', JSON.stringify(patched.metadata.labels));
  const second = await v1.createNamespacedPod({ namespace, body }).catch((error) => error);
  console.log('second create', second.code, JSON.parse(second.body).reason);
  await v1.deleteNamespacedPod({ name: 'one', namespace, gracePeriodSeconds: 0 });
  const gone = await v1.readNamespacedPod({ name: 'one', namespace }).catch((error) => error);
  console.log('read after delete', gone.code, JSON.parse(gone.body).reason);
}

/** Logs, commands with and without input, and a forwarded port. */
async function streams() {
  const log = await v1.readNamespacedPodLog({ name: 'web', namespace: 'default' });
  console.log('log', log.trim().split('\n').join(' '));
  const collect = () => {
    const chunks = [];
    const to = new Writable({ write: (chunk, _, done) => done(chunks.push(chunk) && null) });
    return [to, () => Buffer.concat(chunks).toString().trim()];
  };
  const exec = new k8s.Exec(kubeconfig);
  const run = (command, stdin) => new Promise((resolve, reject) => {
    const [out, said] = collect();
    const [err, complained] = collect();
    const ended = (status) => resolve([said(), complained(), status]);
    exec.exec('default', 'web', 'app', command, out, err, stdin, false, ended).catch(reject);
  });
  const [out, err, failed] = await run(['sh', '-c', 'echo out; echo err >&2; exit 3'], null);
  console.log('exec', out, err, failed.status, failed.details.causes[0].message);
  // A line that the shell runs, and its end: this client cannot end the input itself.
  const [typed, , status] = await run(['sh'], Readable.from(['echo typed\nexit 0\n']));
  console.log('cat', typed, status.status);
  const forward = new k8s.PortForward(kubeconfig);
  const [to, answered] = collect();
  const request = new PassThrough();
  await forward.portForward('default', 'web', [8080], to, null, request);
  request.write('GET / HTTP/1.0\r\n\r\n');
  while (!answered().endsWith('made')) await new Promise((resolve) => setTimeout(resolve, 20));
  console.log('forwarded', answered().split('\r\n')[0]);
  process.exit(0);
}

await { listThenWatch, informer, write, streams }[process.argv[2]]();
