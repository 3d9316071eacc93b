import { type ErrorDetails, isLoss, SplitkvError } from '../base/errors.js';

export interface ApiErrorDetails {
  /** Stable; clients may switch on it. */
  readonly code?: string;
  /** The field at fault. */
  readonly param?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Seconds after which it is worth another try. */
  readonly retryAfter?: number;
  /** The rest of the request isn't read: the connection ends with the answer. */
  readonly ends?: boolean;
  /** Of a prompt that is too long. */
  readonly full?: ErrorDetails | undefined;
  /** What the client isn't told, and whoever runs the server should know. */
  readonly cause?: unknown;
}

/** Letters of a message: a text of the client's that none has cut doesn't come back whole. */
const MOST = 1000;

/** An answer that is an error: its status, and a body in OpenAI's shape. */
export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    readonly status: number,
    message: string,
    readonly details: ApiErrorDetails = {},
  ) {
    super(message.length > MOST ? `${message.slice(0, MOST - 200)}...${message.slice(-200)}` : message, {
      cause: details.cause,
    });
  }

  get body(): object {
    const { code = null, param = null, full } = this.details;
    const told = { message: this.message, type: typeOf(this.status), param, code };
    if (!full) return { error: told };
    // As llama.cpp's clients know it.
    return { error: { ...told, type: 'exceed_context_size_error', n_prompt_tokens: full.tokens, n_ctx: full.most } };
  }
}

function typeOf(status: number): string {
  if (status >= 500) return 'server_error';
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return 'invalid_request_error';
}

export const badRequest = (message: string, param?: string): ApiError =>
  new ApiError(400, message, param === undefined ? {} : { param });

/** Of what may be asked again, in so many seconds. */
export const later = (status: 429 | 503, code: string, retryAfter: number, message: string): ApiError =>
  new ApiError(status, message, { code, retryAfter });

/** What a client is told of an error: what it can act on, and nothing of the server's inside. */
export function toApiError(error: unknown, promptField?: string): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof SplitkvError) {
    const { code, message } = error;
    if (code === 'context_full') {
      return new ApiError(400, message.replace(/^request r\d+: /, ''), {
        code: 'context_length_exceeded',
        full: error.details,
        ...(promptField !== undefined && { param: promptField }),
      });
    }
    // The latter two are models without a tokenizer.
    if (code === 'usage' || code === 'io' || code === 'unsupported')
      return badRequest(message, /^suffix\b/.exec(message)?.[0]);
    if (code === 'limit') return new ApiError(503, message, { code, cause: error });
    // The latter is a lost GPU in whose place the driver gives none.
    if (isLoss(error) || code === 'no_webgpu') {
      return new ApiError(503, 'the model lost its GPU and can answer no more; start the server again', {
        code,
        cause: error,
      });
    }
  }
  return new ApiError(500, 'internal error; the server knows more by this request id', { cause: error });
}
