package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// volume cuts the HFS+ volume out of a disk as xorriso writes it, with an Apple partition map before and an ISO 9660 beside it, for which a Mac
// has no use. An image may hold a volume alone, as `hdiutil create -layout NONE` makes it. Source: Inside Macintosh, Devices, 3-12.
func volume(disk []byte) ([]byte, error) {
	const sector = 512
	for at := sector; at+sector <= len(disk) && string(disk[at:at+2]) == "PM"; at += sector {
		entry := disk[at : at+sector]
		kind, _, _ := bytes.Cut(entry[48:80], []byte{0})
		if string(kind) != "Apple_HFS" {
			continue
		}
		from, count := int(binary.BigEndian.Uint32(entry[8:])), int(binary.BigEndian.Uint32(entry[12:]))
		if from+count > len(disk)/sector || count < 4 {
			return nil, fmt.Errorf("the HFS+ volume of %d sectors from %d on ends behind the disk", count, from)
		}
		out := disk[from*sector : (from+count)*sector]
		for _, header := range [][]byte{out[2*sector:], out[len(out)-2*sector:]} { // the volume's header and its copy
			if string(header[:2]) != "H+" {
				return nil, errors.New("what the partition map calls HFS+ is none")
			}
		}
		return out, nil
	}
	return nil, errors.New("the disk has no HFS+ volume")
}
