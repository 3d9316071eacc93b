import { toApiError } from '../api_error.js';
import { EventStream, type Exchange, outcomeOf } from '../http/exchange.js';

export interface PullProgress {
  readonly file: string;
  readonly loadedBytes: number;
  readonly totalBytes: number;
}
/** Downloads what is lacking of a model of the Hub. @throws SplitkvError `usage` for what names none, and what stops it */
export type PullModel = (
  name: string,
  onProgress: (progress: PullProgress) => void,
  signal: AbortSignal,
) => Promise<unknown>;

/** Between two lines of how far it is. */
const LINE_MS = 250;

/** What /api/pull says of a download. @param pull undefined: it is there */
export async function* pullLines(
  pull: ((onProgress: (progress: PullProgress) => void) => Promise<unknown>) | undefined,
): AsyncGenerator<object> {
  yield { status: 'pulling manifest' };
  if (pull) {
    let told: PullProgress | undefined;
    let last: PullProgress | undefined;
    let ended = false;
    const end = pull((progress) => (last = progress)).finally(() => (ended = true));
    while (!ended) {
      await Promise.race([end, new Promise((done) => setTimeout(done, LINE_MS))]);
      if (last === told) continue;
      told = last;
      const { file, loadedBytes: completed, totalBytes: total } = last!;
      yield { status: `pulling ${file}`, digest: file, total, completed };
    }
    await end;
    yield { status: 'verifying sha256 digest' };
    yield {
      status: 'it is in the cache; this server goes on with the model that it has: begin another with `splitkv serve`',
    };
  }
  yield { status: 'success' };
}

/** Lines as they come, or the last of them. @returns undefined where they were sent */
export async function answerLines(
  exchange: Exchange,
  lines: AsyncIterable<object>,
  isStream: boolean,
): Promise<object | undefined> {
  let stream: EventStream | undefined;
  let last: object | undefined;
  try {
    for await (const line of lines) {
      if (isStream) (stream ??= new EventStream(exchange, true)).send(line);
      last = line;
    }
    stream?.end('completed');
    return stream ? undefined : last;
  } catch (error) {
    const told = toApiError(error);
    if (!stream) throw told;
    stream.send({ error: told.message });
    stream.end(outcomeOf(told));
    return undefined;
  }
}
