import { tried } from '../base/errors.js';
import type { IncomingMessage } from 'node:http';
import { ApiError } from './api_error.js';
import { messageError } from './messages/message_writer.js';

export type RouteName = keyof typeof METHODS;

export interface Route {
  readonly name: RouteName;
  readonly model?: string;
  readonly id?: string;
}

const READ = ['GET', 'HEAD'] as const;
const ASK = ['POST'] as const;
const METHODS = {
  '/': READ,
  '/health': READ,
  '/livez': READ,
  '/readyz': READ,
  '/version': READ,
  '/metrics': READ,
  '/v1/models': READ,
  '/v1/models/{model}': READ,
  '/v1/chat/completions': ASK,
  '/v1/chat/completions/input_tokens': ASK,
  '/v1/completions': ASK,
  '/v1/embeddings': ASK,
  '/v1/rerank': ASK,
  '/v1/responses': ASK,
  '/v1/responses/input_tokens': ASK,
  '/v1/responses/{id}': ['GET', 'HEAD', 'DELETE'],
  '/v1/responses/{id}/input_items': READ,
  '/v1/messages': ASK,
  '/v1/messages/count_tokens': ASK,
  '/tokenize': ASK,
  '/detokenize': ASK,
  // llama.cpp's.
  '/apply-template': ASK,
  '/completion': ASK,
  '/embedding': ASK,
  '/infill': ASK,
  '/props': READ,
  '/slots': READ,
  // Ollama's.
  '/api/chat': ASK,
  '/api/embed': ASK,
  '/api/embeddings': ASK,
  '/api/generate': ASK,
  '/api/ps': READ,
  '/api/pull': ASK,
  '/api/show': ASK,
  '/api/tags': READ,
  '/api/version': READ,
} as const;
/** What anyone may ask, with a key or without. */
const OPEN: readonly RouteName[] = ['/', '/health', '/livez', '/readyz', '/version', '/api/version', '/metrics'];
const MODEL = '/v1/models/';
const RESPONSE = /^\/v1\/responses\/([\w-]+)(\/input_items)?$/;

const pathOf = (url = '/'): string => url.replace(/[?#].*$/s, '');

/** The route of a request's URL. Those of /v1 may do without it, as llama.cpp's. @throws ApiError 404 */
export function findRoute(url: string): Route {
  const path = pathOf(url);
  const plain = path.length > 1 ? path.replace(/\/$/, '') : path;
  const route = routeOf(plain) ?? routeOf(`/v1${plain}`);
  if (route) return route;
  throw new ApiError(404, `there is no ${path.slice(0, 200)} here; docs/serving.md lists the routes`);
}

function routeOf(path: string): Route | undefined {
  if (!path.includes('{') && Object.hasOwn(METHODS, path)) return { name: path as RouteName };
  if (path.startsWith(MODEL)) {
    const model = tried(() => decodeURIComponent(path.slice(MODEL.length)));
    if (model !== undefined) return { name: '/v1/models/{model}', model };
  }
  const [, id, items = ''] = RESPONSE.exec(path) ?? [];
  return id === undefined ? undefined : { name: `/v1/responses/{id}${items as '' | '/input_items'}`, id };
}

/** What supervisors and balancers ask, to know whether it lives. */
export const isProbe = ({ name }: Route): boolean => name === '/livez' || name === '/readyz' || name === '/health';

export const needsKey = ({ name }: Route): boolean => !OPEN.includes(name);

/** @throws ApiError 405 */
export function checkMethod({ name }: Route, method: string): void {
  const allowed: readonly string[] = METHODS[name];
  if (allowed.includes(method)) return;
  throw new ApiError(405, `${method} is not for ${name}; use ${allowed[0]}`, {
    headers: { Allow: allowed.join(', ') },
  });
}

/** Whose clients ask: errors, and lists of models, have that API's shape. */
export type Family = 'openai' | 'anthropic' | 'ollama';

export function familyOf({ url, headers }: Pick<IncomingMessage, 'url' | 'headers'>): Family {
  const path = pathOf(url);
  if (path.startsWith('/api/')) return 'ollama';
  return 'anthropic-version' in headers || /^(\/v1)?\/messages(\/|$)/.test(path) ? 'anthropic' : 'openai';
}

const ERRORS: Readonly<Record<Family, (error: ApiError) => object>> = {
  openai: ({ body }) => body,
  anthropic: messageError,
  ollama: ({ message }) => ({ error: message }),
};

/** What a client is told of an error. */
export const errorBody = (request: IncomingMessage, error: ApiError): object => ERRORS[familyOf(request)](error);
