import { messageOf, unsupportedError } from '../../base/errors.js';
import { startFile, startText } from './rank_script.js';
import type { WorkerCommand, WorkerEvents, WorkerHandle, WorkerReport } from './worker_protocol.js';

/**
 * A rank in a Web Worker: of the worker's own file where there is one; where there is none, or it can't be loaded, of the same code in
 * a blob. What was posted to a worker that never came to life is posted to the second one.
 * @throws SplitkvError `unsupported` where the page's policy forbids it and there is no second way.
 */
export function startPageWorker(events: WorkerEvents): WorkerHandle {
  let worker: Worker | undefined;
  let over = false;
  /** Undefined as soon as a worker has said something. Nothing is transferred before: what is kept here is whole. */
  let unheard: WorkerCommand[] | undefined = [];
  const follow = (started: Worker, failed: (why: string) => void): void => {
    worker = started;
    started.onmessage = ({ data }) => {
      unheard = undefined;
      events.message(data as WorkerReport);
    };
    started.onmessageerror = () => events.ended('a message of it could not be read');
    // A script that isn't found, or that the page's policy forbids, has no message.
    started.onerror = (event) => {
      const why = (event as Partial<ErrorEvent>).message || 'its script could not be loaded';
      if (unheard) failed(why);
      else events.ended(why);
    };
    for (const command of unheard ?? []) started.postMessage(command);
  };
  const second = async (start: () => Promise<Worker>): Promise<void> => {
    worker?.terminate();
    worker = undefined;
    const forbidden = (why: string): void => events.ended(`${why}. ${advice('worker-src blob:')}`);
    try {
      const started = await start();
      if (over) started.terminate();
      else follow(started, forbidden);
    } catch (error) {
      forbidden(messageOf(error));
    }
  };
  try {
    if (startFile) follow(startFile(), (why) => (startText ? void second(startText) : events.ended(why)));
    else if (startText) void second(startText);
  } catch (error) {
    if (!startText) {
      throw unsupportedError(
        `a rank's worker can't be started here: ${messageOf(error)}. ${advice('worker-src')}`,
        error,
      );
    }
    void second(startText);
  }
  return {
    post: (command, transfer) => {
      unheard?.push(command);
      worker?.postMessage(command, transfer);
    },
    hold: () => {},
    end: () => {
      over = true;
      worker?.terminate();
      return Promise.resolve();
    },
  };
}

const advice = (directive: string): string =>
  `Allow workers in the page's Content-Security-Policy (${directive}, trusted types), or leave 'workers' out`;
