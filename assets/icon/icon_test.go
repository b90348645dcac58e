package icon

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"math"
	"testing"
)

// states are all that the tray can be in.
var states = []State{Alone, Peered, Offering, Tethered, Problem, Gone}

func decode(t *testing.T, b []byte) image.Image {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestEveryStateHasEverySize(t *testing.T) {
	for _, state := range states {
		for _, size := range Sizes() {
			if got := decode(t, PNG(state, size)).Bounds(); got.Dx() != size || got.Dy() != size {
				t.Errorf("%s at %d: %v", state, size, got)
			}
		}
		for _, size := range templateSizes {
			img := decode(t, Template(state, size))
			for y := range size {
				for x := range size {
					if r, g, b, _ := img.At(x, y).RGBA(); r|g|b != 0 {
						t.Fatalf("the template of %s is not black at %d,%d", state, x, y)
					}
				}
			}
		}
	}
	if got := decode(t, PNG(Alone, 20)).Bounds().Dx(); got != 22 {
		t.Errorf("for 20 pixels: %d", got)
	}
	if got := decode(t, PNG(Alone, 300)).Bounds().Dx(); got != 48 {
		t.Errorf("for 300 pixels: %d", got)
	}
	decode(t, App())
}

func TestLegibleOnLightAndDark(t *testing.T) {
	linear := func(v uint8) float64 {
		if f := float64(v) / 255; f > 0.04045 {
			return math.Pow((f+0.055)/1.055, 2.4)
		} else {
			return f / 12.92
		}
	}
	contrast := func(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }
	shapes := map[State][]byte{}
	for _, state := range states {
		img, shape := decode(t, read(string(state)+"-16")), make([]byte, 0, 256)
		for y := range 16 {
			for x := range 16 {
				c := color.NRGBAModel.Convert(img.At(x, y)).(color.NRGBA)
				shape = append(shape, c.A>>7)
				if c.A != 255 {
					continue
				}
				l := 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
				if contrast(l, 1) < 3 || contrast(l, 0.0242) < 3 { // #fff, #2b2b2b
					t.Fatalf("%s: %v has contrast %.1f to white, %.1f to dark grey", state, c, contrast(l, 1), contrast(l, 0.0242))
				}
			}
		}
		for other, taken := range shapes {
			differ := 0
			for i := range shape {
				differ += int(shape[i] ^ taken[i])
			}
			if differ < 64 {
				t.Errorf("%s and %s differ in %d of 256 pixels only: without colour nobody tells them apart", state, other, differ)
			}
		}
		shapes[state] = shape
	}
}
