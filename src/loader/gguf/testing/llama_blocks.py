"""
Writes llama_blocks.json: random blocks of every type, and the SHA-256 of what llama.cpp's own dequantisation makes of them.

    python3 llama_blocks.py node_modules/@node-llama-cpp/linux-x64/bins/linux-x64/libggml-base.so    (v0.5.0)

Zeros are +0 in what is hashed, f32, little endian. Of each type's blocks one has a subnormal scale, and one a negative subnormal one.
"""

import base64, ctypes, hashlib, json, os, random, struct, sys

BLOCKS = 8
# Elements, bytes, and where the f16s lie.
TYPES = {
    'Q4_0': (32, 18, [0]), 'Q4_1': (32, 20, [0, 2]), 'Q5_0': (32, 22, [0]), 'Q5_1': (32, 24, [0, 2]), 'Q8_0': (32, 34, [0]),
    'Q2_K': (256, 84, [80, 82]), 'Q3_K': (256, 110, [108]), 'Q4_K': (256, 144, [0, 2]), 'Q5_K': (256, 176, [0, 2]),
    'Q6_K': (256, 210, [208]), 'IQ4_NL': (32, 18, [0]), 'IQ4_XS': (256, 136, [0]), 'MXFP4': (32, 17, []),
    'IQ2_XXS': (256, 66, [0]), 'IQ2_XS': (256, 74, [0]), 'IQ2_S': (256, 82, [0]), 'IQ3_XXS': (256, 98, [0]),
    'IQ3_S': (256, 110, [0]), 'IQ1_S': (256, 50, [0]), 'IQ1_M': (256, 56, []), 'TQ1_0': (256, 54, [52]),
    'TQ2_0': (256, 66, [64]), 'Q1_0': (128, 18, [0]), 'Q2_0': (64, 18, [0]), 'NVFP4': (64, 36, []),
}

library = ctypes.CDLL(sys.argv[1])
draw = random.Random(7)
made = {}
for name, (elements, size, halves) in TYPES.items():
    blocks = bytearray(draw.randrange(256) for _ in range(BLOCKS * size))
    for block in range(BLOCKS):
        at = block * size
        for half in halves:
            if block < 2:
                blocks[at + half + 1] = (blocks[at + half + 1] & 3) | (0x80 if block == 1 else 0)
            else:
                blocks[at + half + 1] &= 0xbf
        if name == 'IQ1_M':  # The highest 4 bits of d.
            blocks[at + 55] = (blocks[at + 55] & 15) | ((0x00, 0x80)[block] if block < 2 else blocks[at + 55] & 0xb0)
        if name == 'MXFP4':
            blocks[at] = (0, 1)[block] if block < 2 else draw.randrange(255)
        if name == 'NVFP4' and block < 2:
            blocks[at : at + 4] = ([0, 127, 7, 255], [1, 8, 128, 126])[block]
    source = (ctypes.c_uint8 * len(blocks)).from_buffer_copy(bytes(blocks))
    out = (ctypes.c_float * (BLOCKS * elements))()
    function = getattr(library, 'dequantize_row_' + name.lower().replace('_k', '_K'))
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    function(source, out, BLOCKS * elements)
    values = struct.pack(f'<{len(out)}f', *(value + 0.0 for value in out))
    made[name] = {
        'blocks': base64.b64encode(bytes(blocks)).decode(),
        'sha256': hashlib.sha256(values).hexdigest(),
    }
with open(os.path.join(os.path.dirname(__file__), 'llama_blocks.json'), 'w') as file:
    json.dump(made, file, indent=1)
    file.write('\n')
