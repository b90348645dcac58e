package datapath

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestClampMSS(t *testing.T) {
	const fin, syn, rst, ack = 1, 2, 4, 16
	for _, c := range []struct {
		name    string
		flags   byte
		options []byte
		at      int // of the value in the options
		want    uint16
	}{
		{"syn", syn, []byte{2, 4, 5, 180}, 2, 1380},
		{"syn ack", syn | ack, []byte{2, 4, 5, 180}, 2, 1380},
		{"at an odd place", syn, []byte{1, 2, 4, 5, 180, 0, 0, 0}, 3, 1380},
		{"behind others", syn, []byte{3, 3, 7, 4, 2, 1, 1, 2, 4, 0xff, 0xff, 0}, 9, 1380},
		{"small enough", syn, []byte{2, 4, 2, 24}, 2, 536},
		{"just right", syn, []byte{2, 4, 5, 100}, 2, 1380},
		{"not a syn", ack, []byte{2, 4, 5, 180}, 2, 1460},
		{"syn fin", syn | fin, []byte{2, 4, 5, 180}, 2, 1460},
		{"syn rst", syn | rst, []byte{2, 4, 5, 180}, 2, 1460},
		{"behind the end", syn, []byte{0, 2, 4, 5, 180, 0, 0, 0}, 3, 1460},
		{"of a wrong length", syn, []byte{2, 3, 5, 180, 2, 4, 5, 180}, 2, 1460},
		{"cut off", syn, []byte{1, 1, 2, 4}, -1, 0},
		{"of length 0", syn, []byte{3, 0, 2, 4, 5, 180, 1, 1}, 4, 1460},
		{"beyond the header", syn, []byte{3, 40, 2, 4, 5, 180, 1, 1}, 4, 1460},
	} {
		p := ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcpSegment(c.flags, c.options, []byte("data")))
		was := bytes.Clone(p)
		clampMSS(p, 20, 1380)
		if c.at >= 0 {
			if got := binary.BigEndian.Uint16(p[40+c.at:]); got != c.want {
				t.Errorf("%s: %d, want %d", c.name, got, c.want)
			}
		} else if !bytes.Equal(p, was) {
			t.Errorf("%s: changed", c.name)
		}
		if bad := sealed(p); bad != "" {
			t.Errorf("%s: wrong %s", c.name, bad)
		}
	}
}

func TestBothDirectionsAreClampedToThePeersPath(t *testing.T) {
	all := parties()
	syn := tcpSegment(2, []byte{2, 4, 5, 180}, nil)
	for called, c := range map[string]struct {
		guest string
		want  uint16
	}{aliceAndBob: {"10.127.0.130", 1360}, "10.128.0.0/24": {"10.128.0.130", 1172}} {
		b, v := leave(all.alice, ipv4Packet("10.42.0.5", c.guest, protoTCP, syn))
		if v != Pass || binary.BigEndian.Uint16(b[Header+42:]) != c.want || sealed(b[Header:]) != "" {
			t.Errorf("to %s: %s, %x, want %d", c.guest, verdictNames[v], b, c.want)
		}
		p, v := arrive(all.alice, sentBy(called, ipv4Packet(c.guest, "10.42.0.5", protoTCP, syn)))
		if v != Pass || binary.BigEndian.Uint16(p[42:]) != c.want || sealed(p) != "" {
			t.Errorf("from %s: %s, %x, want %d", c.guest, verdictNames[v], p, c.want)
		}
	}
}

func FuzzClampMSS(f *testing.F) {
	f.Add([]byte{2, 4, 5, 180}, uint16(1380))
	f.Add([]byte{1, 2, 4, 255, 255, 3, 3, 7}, uint16(536))
	f.Fuzz(func(t *testing.T, options []byte, mss uint16) {
		for len(options)%4 != 0 {
			options = append(options, 0)
		}
		options = options[:min(len(options), 40)]
		p := ipv4Packet("10.42.0.5", "10.65.0.7", protoTCP, tcpSegment(2, options, []byte("data")))
		was := bytes.Clone(p)
		clampMSS(p, 20, mss)
		if bad := sealed(p); bad != "" {
			t.Fatalf("wrong %s", bad)
		}
		changed := 0
		for i := 40; i < len(p); i++ {
			if p[i] != was[i] {
				changed++
			}
		}
		if changed > 2 || !bytes.Equal(p[:36], was[:36]) || !bytes.Equal(p[38:40], was[38:40]) {
			t.Fatalf("changed more than one option:\n%x\n%x", was, p)
		}
		// The same packet cut off anywhere must do no harm.
		for n := 20; n < len(p); n++ {
			clampMSS(p[:n:n], 20, mss)
		}
	})
}
