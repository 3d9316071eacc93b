import { startNodeWorker } from '../workers/node_workers.js';
import { placesHere, type RankPlaces, type WorkerHandle } from '../workers/worker_protocol.js';

/** To a worker of breakable_rank_worker.ts, beside what a rank's worker understands. */
export interface BreakCommand {
  readonly type: 'break';
  /** Its device is destroyed; its GPU reports an error that nobody waits for; the thread ends; code in it throws. */
  readonly how: 'device' | 'error' | 'exit' | 'throw';
}

/** Starts ranks' workers that break on command, and counts those that live. */
export class BreakableRanks {
  readonly handles: WorkerHandle[] = [];
  live = 0;

  readonly places: RankPlaces = placesHere((events) => {
    this.live++;
    const script = new URL('./breakable_rank_worker.ts', import.meta.url);
    const handle = startNodeWorker(events, script);
    this.handles.push(handle);
    void handle.end().then(() => this.live--);
    return handle;
  });

  /** Breaks the worker that was started as the `index`th. */
  break(index: number, how: BreakCommand['how']): void {
    this.handles[index]!.post({ type: 'break', how } as never, []);
  }
}
