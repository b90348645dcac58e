// Package icns writes Apple's icon files: pictures of one thing in several sizes, each a PNG. Source: what iconutil(1) writes.
package icns

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
)

// kinds are the types of pictures by their width in pixels; those of Retina screens are twice as wide as their name says.
var kinds = []struct {
	pixels int
	types  []string
}{
	{16, []string{"icp4"}}, {32, []string{"icp5", "ic11"}}, {64, []string{"ic12"}}, {128, []string{"ic07"}}, {256, []string{"ic08", "ic13"}}, {512, []string{"ic09", "ic14"}},
}

// Make gives the file. Of the PNGs, which are squares, that of 512 pixels must be there; sizes that are not are made of the next larger one.
func Make(pngs ...[]byte) ([]byte, error) {
	given := map[int][]byte{}
	for _, p := range pngs {
		c, err := png.DecodeConfig(bytes.NewReader(p))
		if err != nil {
			return nil, fmt.Errorf("icon: %w", err)
		}
		if c.Width != c.Height {
			return nil, fmt.Errorf("icon: a picture has %d by %d pixels, which is no square", c.Width, c.Height)
		}
		given[c.Width] = p
	}
	size := 512
	if given[size] == nil {
		return nil, fmt.Errorf("icon: none of the pictures has %d pixels", size)
	}
	for size /= 2; size >= 16; size /= 2 {
		if given[size] != nil {
			continue
		}
		half, err := halve(given[2*size])
		if err != nil {
			return nil, fmt.Errorf("icon: %w", err)
		}
		given[size] = half
	}
	var body bytes.Buffer
	for _, k := range kinds {
		for _, name := range k.types {
			entry(&body, name, given[k.pixels])
		}
	}
	var out bytes.Buffer
	entry(&out, "icns", body.Bytes())
	return out.Bytes(), nil
}

// entry writes a type, the length with these eight bytes, and what it holds.
func entry(b *bytes.Buffer, name string, content []byte) {
	b.WriteString(name)
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(8+len(content))))
	b.Write(content)
}

// halve gives a PNG of half the width: each pixel is the mean of four, weighted by how opaque they are.
func halve(from []byte) ([]byte, error) {
	source, err := png.Decode(bytes.NewReader(from))
	if err != nil {
		return nil, err
	}
	at := source.Bounds().Min
	size := source.Bounds().Dx() / 2
	out := image.NewNRGBA(image.Rect(0, 0, size, size))
	for y := range size {
		for x := range size {
			var sum [4]uint32
			for i := range 4 {
				r, g, b, a := source.At(at.X+2*x+i%2, at.Y+2*y+i/2).RGBA() // times alpha
				sum[0], sum[1], sum[2], sum[3] = sum[0]+r, sum[1]+g, sum[2]+b, sum[3]+a
			}
			out.Set(x, y, color.RGBA64{uint16(sum[0] / 4), uint16(sum[1] / 4), uint16(sum[2] / 4), uint16(sum[3] / 4)})
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out)
	return b.Bytes(), err
}

// Sizes lists the pictures of a file, by their type.
func Sizes(file []byte) (map[string]int, error) {
	if len(file) < 8 || string(file[:4]) != "icns" || int(binary.BigEndian.Uint32(file[4:])) != len(file) {
		return nil, fmt.Errorf("icon: no icon file, or it is cut")
	}
	out := map[string]int{}
	for rest := file[8:]; len(rest) > 0; {
		if len(rest) < 8 || int(binary.BigEndian.Uint32(rest[4:])) < 8 || int(binary.BigEndian.Uint32(rest[4:])) > len(rest) {
			return nil, fmt.Errorf("icon: an entry ends behind the file")
		}
		n := int(binary.BigEndian.Uint32(rest[4:]))
		c, err := png.DecodeConfig(bytes.NewReader(rest[8:n]))
		if err != nil {
			return nil, fmt.Errorf("icon: %s: %w", rest[:4], err)
		}
		out[string(rest[:4])] = c.Width
		rest = rest[n:]
	}
	return out, nil
}
