/** What runs in the worker_thread of a rank. */
import { type MessagePort, parentPort } from 'node:worker_threads';
import type { Port } from '../../distributed/index.js';
import { RankServer } from './serve_rank.js';

const port = parentPort as MessagePort;
// The thread ends when nothing is pending any more, on the GPU neither.
const rank = new RankServer(port as unknown as Pick<Port, 'postMessage' | 'onmessage'>, () => port.unref());
process.on('uncaughtException', (error) => rank.fail(error));
