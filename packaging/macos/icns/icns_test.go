package icns

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
)

func picture(t *testing.T, w, h int, at func(x, y int) color.Color) []byte {
	t.Helper()
	i := image.NewNRGBA(image.Rect(0, 0, w, h))
	for x := range w {
		for y := range h {
			i.Set(x, y, at(x, y))
		}
	}
	var b bytes.Buffer
	if err := png.Encode(&b, i); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func red(int, int) color.Color { return color.NRGBA{255, 0, 0, 255} }

func TestAllSizesOfAMacAreThere(t *testing.T) {
	green := picture(t, 128, 128, func(int, int) color.Color { return color.NRGBA{0, 255, 0, 255} })
	file, err := Make(picture(t, 512, 512, red), green)
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := Sizes(file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"icp4": 16, "icp5": 32, "ic11": 32, "ic12": 64, "ic07": 128, "ic08": 256, "ic13": 256, "ic09": 512, "ic14": 512}
	for name, size := range want {
		if sizes[name] != size {
			t.Errorf("%s has %d pixels, want %d", name, sizes[name], size)
		}
	}
	if len(sizes) != len(want) || !bytes.Contains(file, green) {
		t.Errorf("%v", sizes)
	}
	again, _ := Make(picture(t, 512, 512, red), green)
	if !bytes.Equal(file, again) {
		t.Error("not the same twice")
	}
}

func TestSmallerPicturesAreTheMeanOfTheLarger(t *testing.T) {
	// Columns of opaque red and of nothing: half of it, and no darker.
	half, err := halve(picture(t, 4, 4, func(x, _ int) color.Color {
		if x%2 == 0 {
			return color.NRGBA{255, 0, 0, 255}
		}
		return color.NRGBA{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	i, err := png.Decode(bytes.NewReader(half))
	if err != nil || i.Bounds().Dx() != 2 {
		t.Fatal(i, err)
	}
	if c := color.NRGBAModel.Convert(i.At(1, 1)).(color.NRGBA); c.R < 254 || c.G != 0 || c.A != 127 && c.A != 128 {
		t.Errorf("%+v", c)
	}
}

func TestWhatIsNoIconIsRefused(t *testing.T) {
	for why, p := range map[string][]byte{"no square": picture(t, 512, 256, red), "512 pixels": picture(t, 256, 256, red), "PNG": nil} {
		if _, err := Make(p); err == nil && why != "PNG" || err != nil && why != "PNG" && !strings.Contains(err.Error(), why) || why == "PNG" && err == nil {
			t.Errorf("%s: %v", why, err)
		}
	}
	file, _ := Make(picture(t, 512, 512, red))
	for _, bad := range [][]byte{nil, file[:len(file)-1], append([]byte("icnX"), file[4:]...)} {
		if _, err := Sizes(bad); err == nil {
			t.Error("no error")
		}
	}
}
