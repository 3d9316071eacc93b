import { ApiError } from './api_error.js';

export type RouteName = keyof typeof METHODS;

export interface Route {
  readonly name: RouteName;
  readonly model?: string;
  readonly id?: string;
}

const READ = ['GET', 'HEAD'] as const;
const ASK = ['POST'] as const;
const METHODS = {
  '/health': READ,
  '/livez': READ,
  '/readyz': READ,
  '/version': READ,
  '/metrics': READ,
  '/v1/models': READ,
  '/v1/models/{model}': READ,
  '/v1/chat/completions': ASK,
  '/v1/completions': ASK,
  '/v1/embeddings': ASK,
  '/v1/rerank': ASK,
  '/rerank': ASK,
  '/v1/responses': ASK,
  '/v1/responses/{id}': ['GET', 'HEAD', 'DELETE'],
  '/v1/responses/{id}/input_items': READ,
  '/v1/messages': ASK,
  '/v1/messages/count_tokens': ASK,
  '/tokenize': ASK,
  '/detokenize': ASK,
} as const;
/** What anyone may ask, with a key or without. */
const OPEN: readonly RouteName[] = ['/health', '/livez', '/readyz', '/version', '/metrics'];
const MODEL = '/v1/models/';
const RESPONSE = /^\/v1\/responses\/([\w-]+)(\/input_items)?$/;

/** The route of a request's URL. @throws ApiError 404 */
export function findRoute(url: string): Route {
  const path = url.replace(/[?#].*$/s, '');
  const plain = path.length > 1 ? path.replace(/\/$/, '') : path;
  if (!plain.includes('{') && Object.hasOwn(METHODS, plain)) return { name: plain as RouteName };
  if (plain.startsWith(MODEL)) {
    const model = decode(plain.slice(MODEL.length));
    if (model !== undefined) return { name: '/v1/models/{model}', model };
  }
  const [, id, items = ''] = RESPONSE.exec(plain) ?? [];
  if (id !== undefined) return { name: `/v1/responses/{id}${items as '' | '/input_items'}`, id };
  throw new ApiError(404, `there is no ${path.slice(0, 200)} here; paths are ${Object.keys(METHODS).join(', ')}`);
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

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
