import type { IncomingMessage, ServerResponse } from 'node:http';
import { formatBytes } from '../base/math.js';
import { ApiError, badRequest } from './api_error.js';

/**
 * A request's body as JSON. A client that asks whether it may send its body is told so once its headers allow it.
 * @throws ApiError 400 for what isn't JSON in UTF-8, 413 for more bytes than allowed (as soon as that is known), 415 for a body that
 *   is compressed
 */
export async function readJson(request: IncomingMessage, response: ServerResponse, maxBytes: number): Promise<unknown> {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') {
    throw new ApiError(415, `content-encoding ${encoding} is not supported; send the body as it is`);
  }
  const tooLarge = (): ApiError =>
    new ApiError(
      413,
      `the body is larger than ${formatBytes(maxBytes)}; send less, or start the server with --max-body`,
    );
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  if (request.headers.expect !== undefined) response.writeContinue();
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of leavingOpen(request)) {
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLarge();
    chunks.push(chunk);
  }
  if (bytes === 0) throw badRequest('the body is empty; expected a JSON object');
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(chunks)));
  } catch (error) {
    const why = error instanceof SyntaxError ? error.message : 'it is not UTF-8';
    throw badRequest(`the body is not valid JSON: ${why}`);
  }
}

/** Its chunks. A reader that stops early leaves the connection open: the answer is still to be sent on it. */
const leavingOpen = (request: IncomingMessage): AsyncIterable<Buffer> =>
  request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
