// Package udzo writes and reads compressed Apple disk images (UDIF, format UDZO): blocks of the disk by zlib, a list of where each is, and a
// trailer of 512 bytes, "koly". There is no specification by Apple; the field names are those of libdmg-hfsplus and dmg2img, which read it, as macOS does.
package udzo

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"howett.net/plist"
)

const (
	sector = 512
	// chunk is how many sectors are compressed at a time, as hdiutil has it: 256 KiB.
	chunk = 512

	zlibRun, zeroRun, endRun = 0x80000005, 0, 0xffffffff // types of a run
	crc                      = 2                         // the type of a checksum, of 32 bits
)

type checksum struct {
	Type, Bits uint32
	Data       [32]uint32
}

func checksumOf(sum uint32) checksum { return checksum{Type: crc, Bits: 32, Data: [32]uint32{sum}} }

// trailer is the last sector of the file.
type trailer struct {
	Signature                      [4]byte // koly
	Version, Size, Flags           uint32
	RunningDataForkOffset          uint64
	DataForkOffset, DataForkLength uint64
	RsrcForkOffset, RsrcForkLength uint64
	SegmentNumber, SegmentCount    uint32
	SegmentID                      [16]byte
	DataChecksum                   checksum
	XMLOffset, XMLLength           uint64
	_                              [120]byte
	MasterChecksum                 checksum
	ImageVariant                   uint32
	SectorCount                    uint64
	_                              [12]byte
}

// blocks is the head of a list of runs; they follow.
type blocks struct {
	Signature                [4]byte // mish
	Version                  uint32
	FirstSector, SectorCount uint64
	DataStart                uint64
	BufferSectors            uint32
	Descriptors              uint32
	_                        [24]byte
	Checksum                 checksum
	Runs                     uint32
}

type run struct {
	Type, _         uint32
	Sector, Sectors uint64
	Offset, Length  uint64
}

// resource is one entry of the list in the property list.
type resource struct {
	Attributes string
	CFName     string
	Data       []byte
	ID         string
	Name       string
}

type forks struct {
	Fork map[string][]resource `plist:"resource-fork"`
}

// Write writes the image of a volume without a partition map, whose bytes are a multiple of 512, to out.
func Write(out io.Writer, disk []byte) error {
	if len(disk) == 0 || len(disk)%sector != 0 {
		return fmt.Errorf("disk image: %d bytes are no whole number of sectors", len(disk))
	}
	var data bytes.Buffer
	var runs []run
	sectors := len(disk) / sector
	for at := 0; at < sectors; at += chunk {
		n := min(chunk, sectors-at)
		raw := disk[at*sector : (at+n)*sector]
		r := run{Type: zlibRun, Sector: uint64(at), Sectors: uint64(n), Offset: uint64(data.Len())}
		if bytes.Count(raw, []byte{0}) == len(raw) {
			r.Type = zeroRun
		} else {
			z, err := zlib.NewWriterLevel(&data, zlib.BestCompression)
			if err == nil {
				_, err = z.Write(raw)
			}
			if err = errors.Join(err, z.Close()); err != nil {
				return err
			}
		}
		r.Length = uint64(data.Len()) - r.Offset
		runs = append(runs, r)
	}
	runs = append(runs, run{Type: endRun, Sector: uint64(sectors), Offset: uint64(data.Len())})

	sum := checksumOf(crc32.ChecksumIEEE(disk))
	list := blocks{Signature: [4]byte{'m', 'i', 's', 'h'}, Version: 1, SectorCount: uint64(sectors), BufferSectors: chunk + 8, Descriptors: 0xffffffff, Checksum: sum, Runs: uint32(len(runs))}
	var table bytes.Buffer
	if err := write(&table, list, runs); err != nil {
		return err
	}
	xml, err := plist.MarshalIndent(forks{map[string][]resource{"blkx": {{
		Attributes: "0x0050", CFName: "whole disk (Apple_HFS : 0)", Data: table.Bytes(), ID: "0", Name: "whole disk (Apple_HFS : 0)",
	}}}}, plist.XMLFormat, "\t")
	if err != nil {
		return err
	}
	var master [4]byte
	binary.BigEndian.PutUint32(master[:], sum.Data[0])
	end := trailer{
		Signature: [4]byte{'k', 'o', 'l', 'y'}, Version: 4, Size: sector, Flags: 1, DataForkLength: uint64(data.Len()), SegmentNumber: 1, SegmentCount: 1,
		DataChecksum: checksumOf(crc32.ChecksumIEEE(data.Bytes())), XMLOffset: uint64(data.Len()), XMLLength: uint64(len(xml)),
		MasterChecksum: checksumOf(crc32.ChecksumIEEE(master[:])), ImageVariant: 1, SectorCount: uint64(sectors),
	}
	copy(end.SegmentID[:], data.Bytes()[max(0, data.Len()-16):]) // any that is another for another disk
	return write(out, data.Bytes(), xml, end)
}

func write(out io.Writer, parts ...any) error {
	for _, p := range parts {
		if err := binary.Write(out, binary.BigEndian, p); err != nil {
			return err
		}
	}
	return nil
}

// Read gives the disk of an image that has one list of blocks, as Write makes it, and looks at all checksums.
func Read(file []byte) ([]byte, error) {
	var end trailer
	if len(file) < sector {
		return nil, errors.New("disk image: it has no trailer")
	}
	if err := binary.Read(bytes.NewReader(file[len(file)-sector:]), binary.BigEndian, &end); err != nil {
		return nil, err
	}
	size := uint64(len(file) - sector)
	if string(end.Signature[:]) != "koly" || end.DataForkLength > size || end.XMLOffset > size || end.XMLLength > size-end.XMLOffset {
		return nil, errors.New("disk image: its trailer names what is not there")
	}
	data := file[:end.DataForkLength]
	var f forks
	if _, err := plist.Unmarshal(file[end.XMLOffset:end.XMLOffset+end.XMLLength], &f); err != nil || len(f.Fork["blkx"]) != 1 {
		return nil, fmt.Errorf("disk image: no list of blocks (%w)", err)
	}
	table := bytes.NewReader(f.Fork["blkx"][0].Data)
	var list blocks
	if err := binary.Read(table, binary.BigEndian, &list); err != nil || string(list.Signature[:]) != "mish" {
		return nil, fmt.Errorf("disk image: its list of blocks is none (%w)", err)
	}
	var disk bytes.Buffer
	for range list.Runs {
		var r run
		if err := binary.Read(table, binary.BigEndian, &r); err != nil {
			return nil, err
		}
		switch n := int64(r.Sectors) * sector; {
		case r.Type == endRun:
		case r.Sector != uint64(disk.Len()/sector) || r.Offset > uint64(len(data)) || r.Length > uint64(len(data))-r.Offset || r.Sectors > chunk:
			return nil, errors.New("disk image: a block is not where it should be")
		case r.Type == zeroRun:
			disk.Write(make([]byte, n))
		default:
			z, err := zlib.NewReader(bytes.NewReader(data[r.Offset : r.Offset+r.Length]))
			if err != nil {
				return nil, err
			}
			if _, err := io.CopyN(&disk, z, n); err != nil {
				return nil, err
			}
		}
	}
	sum := crc32.ChecksumIEEE(disk.Bytes())
	var master [4]byte
	binary.BigEndian.PutUint32(master[:], sum)
	if list.Checksum.Data[0] != sum || end.DataChecksum.Data[0] != crc32.ChecksumIEEE(data) || end.MasterChecksum.Data[0] != crc32.ChecksumIEEE(master[:]) {
		return nil, errors.New("disk image: a checksum does not fit")
	}
	if uint64(disk.Len()) != end.SectorCount*sector {
		return nil, errors.New("disk image: blocks are missing")
	}
	return disk.Bytes(), nil
}
