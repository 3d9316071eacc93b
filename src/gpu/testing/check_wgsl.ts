import { detectRaces, WgslReflect } from 'wgsl_reflect';
import { Random } from '../../base/random.js';
import type { DeviceTraits } from '../device.js';
import { assembleWgsl, type Bindings, paramBytes, type ParamTypes, writeParams } from '../kernel.js';
import type { KernelCase, KernelSuite } from './kernel_case.js';

/** Differences between a kernel's TypeScript declaration and its WGSL, as sentences; empty when they agree. */
export function bindingProblems(
  kernel: { readonly bindings: Bindings; readonly params: ParamTypes },
  code: string,
): string[] {
  const reflect = new WgslReflect(code);
  const problems: string[] = [];
  const declared = Object.entries(kernel.bindings);
  const storage = [...reflect.storage].sort((a, b) => a.binding - b.binding);
  for (const [binding, [name, access]] of declared.entries()) {
    const found = storage.find((variable) => variable.binding === binding);
    if (!found) problems.push(`@binding(${binding}) '${name}' is not in the WGSL`);
    else if (found.group !== 0) problems.push(`'${found.name}' is in @group(${found.group}), not 0`);
    else if (found.name !== name)
      problems.push(`@binding(${binding}) is '${found.name}' in WGSL, '${name}' in TypeScript`);
    else if ((found.access || 'read') !== access)
      problems.push(`'${name}' is ${found.access || 'read'} in WGSL, ${access} in TypeScript`);
  }
  for (const extra of storage.filter((variable) => variable.binding >= declared.length)) {
    problems.push(`WGSL binding '${extra.name}' is not declared in TypeScript`);
  }
  const uniform = reflect.uniforms[0];
  if (reflect.uniforms.length !== 1 || !uniform) problems.push('the WGSL must have exactly one uniform, `params`');
  else {
    if (uniform.binding !== declared.length || uniform.group !== 0)
      problems.push('`params` must be the last binding of group 0');
    const members = reflect.structs.find((struct) => struct.name === 'Params')?.members ?? [];
    const wgsl = members.map((member) => `${member.name}: ${member.type.name}`).join(', ');
    const ts = Object.entries(kernel.params)
      .map(([name, type]) => `${name}: ${type}`)
      .join(', ');
    if (wgsl !== ts) problems.push(`struct Params is {${wgsl}} in WGSL, {${ts}} in TypeScript`);
  }
  if (reflect.entry.compute.length !== 1 || reflect.entry.compute[0]!.name !== 'main') {
    problems.push('the WGSL must have exactly one compute entry point, `main`');
  }
  return problems;
}

/** Data races that wgsl_reflect finds in the first workgroup of a (small) case, as sentences. */
export function races<B extends Bindings, P extends ParamTypes, Problem>(
  suite: KernelSuite<B, P, Problem>,
  testCase: KernelCase<Problem>,
  traits: DeviceTraits,
): string[] {
  const { kernel } = suite;
  const plan = kernel.plan(testCase.problem, traits);
  const inputs = suite.inputs(testCase.problem, new Random(testCase.seed));
  const outputs = suite.outputs(testCase.problem);
  const group: Record<string, unknown> = {};
  for (const [binding, name] of Object.keys(kernel.bindings).entries()) {
    const input = inputs[name];
    const output = outputs[name];
    group[binding] = input
      ? input.buffer.slice(input.byteOffset, input.byteOffset + input.byteLength)
      : new ArrayBuffer(output ? output.length * 4 : 16);
  }
  const params = new ArrayBuffer(paramBytes(kernel.params));
  writeParams(kernel.params, plan.params, new DataView(params), 0);
  group[Object.keys(kernel.bindings).length] = { uniform: params };
  const grid = typeof plan.grid === 'function' ? plan.grid(testCase.step ?? { rows: 1, chunks: 1 }) : plan.grid;
  // wgsl_reflect's interpreter doesn't know workgroupUniformLoad: a load between two barriers is what it means.
  const code = constantsFirst(assembleWgsl(kernel.name, plan)).replace(
    /(let|var) (\w+) = workgroupUniformLoad\(&(\w+)\);/g,
    'workgroupBarrier(); $1 $2 = $3; workgroupBarrier();',
  );
  const result = detectRaces(code, 'main', [...grid], { 0: group as Record<string, never> });
  return [...result.races.map((race) => race.message), ...result.errors];
}

/** WGSL whose constants stand first, each after those it needs: wgsl_reflect's interpreter goes by their order, WGSL does not. */
function constantsFirst(code: string): string {
  const texts = new Map<string, string>();
  const rest = code.replaceAll(/^const (\w+)[^;]*;/gm, (text: string, name: string) => {
    texts.set(name, text);
    return '';
  });
  const sorted = new Set<string>();
  const place = (text: string): void => {
    const names = (text.match(/\w+/g) ?? []).slice(2);
    for (const name of names) if (texts.has(name)) place(texts.get(name)!);
    sorted.add(text);
  };
  for (const text of texts.values()) place(text);
  return rest.replace(/^(?:(?:enable|requires|diagnostic)[^;]*;\s*)*/, (head) => `${head}${[...sorted].join('\n')}\n`);
}
