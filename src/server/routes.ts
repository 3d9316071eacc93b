import { ApiError } from './api_error.js';

export type RouteName =
  | '/health'
  | '/metrics'
  | '/v1/models'
  | '/v1/models/{model}'
  | '/v1/chat/completions'
  | '/v1/completions';

export interface Route {
  readonly name: RouteName;
  /** The model that the path names. */
  readonly model?: string;
}

const METHODS: Readonly<Record<RouteName, readonly string[]>> = {
  '/health': ['GET', 'HEAD'],
  '/metrics': ['GET', 'HEAD'],
  '/v1/models': ['GET', 'HEAD'],
  '/v1/models/{model}': ['GET', 'HEAD'],
  '/v1/chat/completions': ['POST'],
  '/v1/completions': ['POST'],
};
const MODEL = '/v1/models/';

/** The route of a request's URL. @throws ApiError 404 */
export function findRoute(url: string): Route {
  const path = url.replace(/[?#].*$/s, '');
  const plain = path.length > 1 ? path.replace(/\/$/, '') : path;
  if (plain !== '/v1/models/{model}' && Object.hasOwn(METHODS, plain)) return { name: plain as RouteName };
  if (plain.startsWith(MODEL)) {
    const model = decode(plain.slice(MODEL.length));
    if (model !== undefined) return { name: '/v1/models/{model}', model };
  }
  throw new ApiError(404, `there is no ${path.slice(0, 200)} here; paths are ${Object.keys(METHODS).join(', ')}`);
}

/** @throws ApiError 405 */
export function checkMethod({ name }: Route, method: string): void {
  const allowed = METHODS[name];
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
