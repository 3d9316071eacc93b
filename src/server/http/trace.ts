const ZEROS = /^0+$/;

/**
 * The trace's id, 32 hexadecimal digits, of a `traceparent` header (W3C Trace Context: version, trace, span, flags). Undefined for one that
 * is none, which is passed over as the specification says.
 */
export function traceOf(header: string | string[] | undefined): string | undefined {
  const [, version, trace, span, more] =
    /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(-.*)?$/.exec(String(header)) ?? [];
  if (trace === undefined || version === 'ff' || ZEROS.test(trace) || ZEROS.test(span!)) return undefined;
  return version === '00' && more !== undefined ? undefined : trace;
}
