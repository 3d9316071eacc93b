import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';

/** Vitest's outcome for scripts/test.mjs, errors outside of tests with it: as JSON in the file that SPLITKV_UNIT_REPORT names. */
export default class UnitReport {
  onTestRunEnd(modules, unhandledErrors) {
    const counts = { passed: 0, failed: 0, skipped: 0 };
    const failures = [];
    for (const module of modules) {
      const path = module.relativeModuleId;
      for (const test of module.children.allTests()) {
        const { state, errors } = test.result();
        counts[state === 'pending' ? 'skipped' : state]++;
        if (state === 'failed') failures.push({ path, test: test.fullName, message: errors[0]?.message });
      }
      // A file that doesn't load has no test to fail, yet is a failure.
      for (const { message } of module.errors()) {
        counts.failed++;
        failures.push({ path, test: 'the file', message });
      }
    }
    for (const module of modules) {
      const isOver = ['passed', 'failed', 'skipped'].includes(module.state());
      if (!isOver) failures.push({ path: module.relativeModuleId, test: 'the file', message: "didn't end" });
    }
    for (const { message, stack = '', cause, VITEST_TEST_PATH: path } of unhandledErrors) {
      counts.failed++;
      const [first] = `${message}${cause ? ` (${cause.message})` : ''}`.split('\n');
      const where = stack.split('\n').find((line) => /\/(src|scripts|shaders|bench)\//.test(line)) ?? '';
      const file = path ? relative(process.cwd(), path) : 'a process';
      failures.push({ path: file, test: 'outside of a test', message: `${first} ${where.trim()}` });
    }
    writeFileSync(process.env.SPLITKV_UNIT_REPORT, JSON.stringify({ ...counts, failures }));
  }
}
