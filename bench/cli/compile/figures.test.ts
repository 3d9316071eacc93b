import { expect, test } from 'vitest';
import { loopGuards, serialScans, threadBytesInFlight } from './figures.js';

const SPIRV = `
     %v2uint = OpTypeVector %uint 2
         %48 = OpConstantComposite %v2uint %uint_4294967295 %uint_4294967295
               OpStore %45 %48
               OpLoopMerge %30 %28 None
               OpStore %50 %uint_0
               OpLoopMerge %35 %33 None
               OpStore %46 %48
               OpLoopMerge %40 %38 None`;

test("a loop's guard is a counter of 64 bits that is set to ones", () => {
  expect(loopGuards(SPIRV)).toBe(2);
  expect(loopGuards(SPIRV.replaceAll(/OpStore %4. %48/g, ''))).toBe(0);
  expect(loopGuards('%v2uint = OpTypeVector %uint 2')).toBe(0);
});

test('loads are in flight from where they are issued to the wait for them', () => {
  const loop = `BB0:
	buffer_load_b128 v[0:3], v9, s[4:7], 0 offen                ; e0
	buffer_load_b128 v[4:7], v9, s[4:7], 0 offen offset:16      ; e0
	buffer_load_b128 v[4:7], v9, s[4:7], 0 offen offset:32      ; e0
	s_waitcnt vmcnt(0)                                          ; bf
BB1:
	s_buffer_load_b32 s1, s[4:7], null                          ; f4
	buffer_load_b64 v[4:5], v2, s[4:7], 0 offen                 ; e0
	s_waitcnt vmcnt(0) lgkmcnt(0)                               ; bf
	buffer_load_u8 v4, v2, s[4:7], 0 offen                      ; e0
	global_load_b32 v3, v[0:1], off                             ; e0
	s_waitcnt vmcnt(1)                                          ; bf
	buffer_load_b128 v[4:7], v2, s[4:7], 0 offen                ; e0
	s_waitcnt vmcnt(0)                                          ; bf
	s_cbranch_scc1 BB1                                          ; bf
BB2:
	s_endpgm                                                    ; bf`;
  // One of 4 bytes is still out when 16 more are asked for.
  expect(threadBytesInFlight(loop)).toBe(20);
  expect(threadBytesInFlight(loop.replace('s_cbranch_scc1 BB1', 's_cbranch_scc1 BB2'))).toBe(48);
  expect(threadBytesInFlight('BB0:\n\ts_endpgm')).toBe(null);
});

test("the same of ACO's own listing, which stands in where the disassembler doesn't know the card", () => {
  const loop = `BB0
/* logical preds: / linear preds: / kind: uniform, top-level, loop-preheader, */
	 v1: %38:v[3] = buffer_load_dword %35:s[4-7], %37:v[2], 0 offen storage:buffer semantics:private,reorder
	 v4: %38:v[3-6] = buffer_load_dwordx4 %35:s[4-7], %37:v[2], 0 offen storage:buffer semantics:private,reorder
	 v4: %38:v[3-6] = buffer_load_dwordx4 %35:s[4-7], %37:v[2], 0 offen storage:buffer semantics:private,reorder
	s_wait_loadcnt imm:1
	 v2: %38:v[3-4] = buffer_load_dwordx2 %35:s[4-7], %37:v[2], 0 offen storage:buffer semantics:private,reorder
	s_wait_loadcnt_dscnt dscnt(0) loadcnt(1)
	 v3: %38:v[3-5] = buffer_load_dwordx3 %35:s[4-7], %37:v[2], 0 offen storage:buffer semantics:private,reorder
	s_cbranch_scc1 block:BB0`;
  expect(threadBytesInFlight(loop)).toBe(36);
});

test('a serial scan is a loop that waits for one load from workgroup memory and for nothing beside', () => {
  const scan = `BB0
BB1:
	ds_load_b128 v[0:3], v4                                     ; d8
	s_waitcnt lgkmcnt(0)                                        ; bf
	v_add_f32_e32 v5, v0, v5                                    ; 06
	s_cbranch_scc1 BB1                                          ; bf
BB2:
	s_cbranch_scc1 BB0                                          ; bf`;
  expect(serialScans(scan)).toBe(1);
  expect(serialScans(scan.replace('s_cbranch_scc1 BB1', 's_nop 0'))).toBe(1);
  const two = scan.replace('v_add_f32', 'ds_load_b128 v[8:11], v4\n\tv_add_f32');
  expect(serialScans(two)).toBe(0);
  expect(serialScans(scan.replace('v_add_f32', 'buffer_load_b128 v[8:11], v9\n\tv_add_f32'))).toBe(0);
  expect(serialScans(scan.replaceAll('s_cbranch', 's_never'))).toBe(0);
});
