import { arrange, type Arrangement, type ArrangementProblem } from '../../src/arrangement/index.js';
import { serveJob } from '../shared/worker_job.js';

export interface ArrangeResult {
  readonly before: Arrangement;
  readonly after: Arrangement;
}

serveJob<ArrangementProblem, ArrangeResult>((problem) => {
  const { memory: _memory, ...unlimited } = problem;
  return { before: arrange({ ...unlimited, mode: 'static' }), after: arrange(problem) };
});
