// Makes a picture of a page smaller: 256 colours instead of millions, the rest become the nearest of them.
import zlib, { deflateSync, inflateSync } from 'node:zlib';

/** @param {Buffer} file a PNG of Chromium: 8 bits, RGB or RGBA, not interlaced */
export function smaller(file) {
  const chunks = [];
  for (let at = 8; at < file.length;) {
    const length = file.readUInt32BE(at);
    chunks.push({ type: file.toString('latin1', at + 4, at + 8), data: file.subarray(at + 8, at + 8 + length) });
    at += length + 12;
  }
  const head = chunks[0].data;
  const [width, height, size] = [head.readUInt32BE(0), head.readUInt32BE(4), head[9] === 6 ? 4 : 3];
  const pixels = unfilter(inflateSync(Buffer.concat(chunks.filter(({ type }) => type === 'IDAT').map(({ data }) => data))), width * size, height, size);
  const colours = new Uint32Array(width * height);
  const counts = new Map();
  for (let index = 0; index < colours.length; index += 1) {
    const at = index * size;
    colours[index] = (pixels[at] << 16) | (pixels[at + 1] << 8) | pixels[at + 2];
    counts.set(colours[index], (counts.get(colours[index]) ?? 0) + 1);
  }
  const palette = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([colour]) => colour);
  const known = new Map(palette.map((colour, index) => [colour, index]));
  const rows = Buffer.alloc((width + 1) * height);
  for (let index = 0; index < colours.length; index += 1) {
    const colour = colours[index];
    if (!known.has(colour)) known.set(colour, nearest(colour, palette));
    rows[index + Math.floor(index / width) + 1] = known.get(colour);
  }
  const newHead = Buffer.from(head);
  newHead[9] = 3;
  const table = Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255]));
  return Buffer.concat([file.subarray(0, 8), chunk('IHDR', newHead), chunk('PLTE', table), chunk('IDAT', deflateSync(rows, { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}

function nearest(colour, palette) {
  let [best, found] = [Infinity, 0];
  palette.forEach((other, index) => {
    const distance = ((colour >> 16) - (other >> 16)) ** 2 + (((colour >> 8) & 255) - ((other >> 8) & 255)) ** 2 + ((colour & 255) - (other & 255)) ** 2;
    if (distance < best) [best, found] = [distance, index];
  });
  return found;
}

/** Reverses the filters of the rows, as the format describes them. */
function unfilter(data, stride, height, size) {
  const out = Buffer.alloc(stride * height);
  for (let row = 0; row < height; row += 1) {
    const filter = data[row * (stride + 1)];
    for (let column = 0; column < stride; column += 1) {
      const at = row * stride + column;
      const left = column >= size ? out[at - size] : 0;
      const up = row ? out[at - stride] : 0;
      const corner = row && column >= size ? out[at - stride - size] : 0;
      const guess = left + up - corner;
      const distances = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
      const paeth = distances[0] <= distances[1] && distances[0] <= distances[2] ? left : distances[1] <= distances[2] ? up : corner;
      out[at] = data[row * (stride + 1) + column + 1] + [0, left, up, (left + up) >> 1, paeth][filter];
    }
  }
  return out;
}

function chunk(type, data) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(checksum(body), body.length + 4);
  return out;
}

/** Node has it since version 22. */
function checksum(bytes) {
  if (zlib.crc32) return zlib.crc32(bytes);
  let sum = ~0;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}
