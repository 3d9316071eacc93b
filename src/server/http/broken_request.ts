import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { ApiError } from '../api_error.js';

/**
 * What isn't HTTP, or came too slowly, is told so where nothing was sent yet; then the connection is closed. The status of a request that
 * nobody else has heard of; undefined where the answer to one is under way, or nobody is there.
 */
export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket): number | undefined {
  // Node keeps the answer in progress there.
  const { _httpMessage: answer } = socket as { _httpMessage?: ServerResponse | null };
  const { status, body } = errorOf(error.code);
  const isTold = socket.writable && !answer?.headersSent;
  if (isTold) {
    const text = JSON.stringify(body);
    socket.write(
      `HTTP/1.1 ${status} Error\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(text)}\r\n` +
        `Connection: close\r\n\r\n${text}`,
    );
  }
  socket.destroySoon();
  return isTold && !answer ? status : undefined;
}

function errorOf(code: string | undefined): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') return new ApiError(431, 'the headers are too large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError(408, 'the request took too long to arrive');
  return new ApiError(400, 'this is not a valid HTTP request');
}
