/** What runs in the worker_thread of forms. */
import { type MessagePort, parentPort } from 'node:worker_threads';
import { type FormAsk, FormServer } from './serve_forms.js';

const server = new FormServer();
const port = parentPort as MessagePort;
port.on('message', (ask: FormAsk) => port.postMessage(server.tell(ask)));
port.postMessage('ready');
