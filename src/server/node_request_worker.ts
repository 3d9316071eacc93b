/** What runs in the worker_thread that reads requests. */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { type PromptReader, promptReader, type PromptSource } from '../engine/serving/prompt_tokens.js';
import { toApiError } from './api_error.js';
import { readTokenCall } from './requests/read_call.js';
import type { ThreadReply, ThreadRequest } from './request_reader.js';

const port = parentPort as MessagePort;
const reading = promptReader(workerData as PromptSource);

void reading.then((reader) => {
  port.on('message', (request: ThreadRequest) => port.postMessage(reply(request, reader)));
  port.postMessage('ready');
});

function reply({ body, kind }: ThreadRequest, reader: PromptReader): ThreadReply {
  try {
    return { call: readTokenCall(kind, body, reader) };
  } catch (error) {
    const { status, message, details } = toApiError(error);
    return { refused: { status, message, details } };
  }
}
