package icon

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
)

// forSystray rewrites a PNG so that fyne.io/systray v1.12.2 shows half-transparent pixels right. The library hands the panel the
// low byte of each 16-bit, alpha-premultiplied channel (argbForImage), where the panel expects the plain 8-bit value: garbage
// wherever alpha is neither 0 nor 255, so every edge is ragged. A PNG of 16 bits a channel can have what is wanted in the low
// bytes and the right colour in the high ones, and so looks right to every other reader too.
func forSystray(b []byte) []byte {
	in, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		panic("an icon is no PNG: " + err.Error())
	}
	out := image.NewNRGBA64(in.Bounds())
	for y := range in.Bounds().Dy() {
		for x := range in.Bounds().Dx() {
			c := color.NRGBAModel.Convert(in.At(x, y)).(color.NRGBA)
			out.SetNRGBA64(x, y, color.NRGBA64{R: both(c.R, c.A), G: both(c.G, c.A), B: both(c.B, c.A), A: uint16(c.A) * 0x101})
		}
	}
	var buf bytes.Buffer
	if err := png.Encode(&buf, out); err != nil {
		panic("encode an icon: " + err.Error())
	}
	return buf.Bytes()
}

// both gives the 16-bit channel which, premultiplied with alpha a, has v*a/255 in its high byte and v in its low one.
func both(v, a uint8) uint16 {
	if a == 0 {
		return 0
	}
	alpha := uint32(a) * 0x101
	want := (uint32(v)*uint32(a)/255)<<8 | uint32(v)
	if want > alpha {
		want -= 0x100
	}
	return uint16((want*0xffff + alpha - 1) / alpha) // rounded up: color.NRGBA64.RGBA rounds down
}
