/** What runs in the worker_thread of a replica's heartbeats. */
import { messageOf } from '../../base/errors.js';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { type Cluster, connectCluster } from '../../cluster/connect.js';
import type { BeatsCluster, ThreadSaid, Told } from './beats.js';
import { BEAT_MS, encode } from './messages.js';

/** Beats between two that say what is cached where nothing changed: for gateways that came meanwhile. */
const FILTER_EACH = 10;

const port = parentPort as MessagePort;
const say = (what: ThreadSaid): void => port.postMessage(what);

connectCluster(workerData as BeatsCluster).then(beatOn, (error: unknown) => say({ error: messageOf(error) }));

function beatOn(cluster: Cluster): void {
  let told: Told | undefined;
  let prefixes: Uint8Array | undefined;
  let toldAt = performance.now();
  let untilFilter = 0;
  const beat = (): void => {
    if (!told) return;
    const withFilter = prefixes && untilFilter-- <= 0;
    if (withFilter) untilFilter = FILTER_EACH;
    const { name } = told.beat;
    const lag = Math.round(performance.now() - toldAt);
    const data = encode({ ...told.beat, lag }, withFilter ? prefixes : undefined);
    cluster.connection.publish(cluster.subject('beat', name), data);
  };
  const timer = setInterval(beat, BEAT_MS);
  port.on('message', (now: Told) => {
    const isNews = now.beat.draining !== told?.beat.draining || now.beat.status !== told.beat.status || now.beat.left;
    told = now;
    toldAt = performance.now();
    if (now.prefixes) {
      prefixes = now.prefixes;
      untilFilter = 0;
    }
    if (isNews) beat();
    if (!now.beat.left) return;
    clearInterval(timer);
    void cluster.close().then(() => say('left'));
  });
  say('ready');
}
