/** What runs in the Web Worker of forms. */
import { type FormAsk, FormServer } from './serve_forms.js';

const server = new FormServer();
const port = globalThis as unknown as Pick<Worker, 'postMessage' | 'onmessage'>;
port.onmessage = ({ data }) => port.postMessage(server.tell(data as FormAsk));
port.postMessage('ready');
