package main

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestTriesSayWhatCameOfEach(t *testing.T) {
	t.Setenv("POD_IP", "10.42.0.5")
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	go echoPackets(packets)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0") // it hangs up on everybody
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	web := strings.TrimPrefix(newServer(t).URL, "http://")
	me, _ := os.Hostname()
	for i, want := range []struct {
		line, name, client, err string
		connected               bool
	}{
		{"tcp " + web + " 1", me, "127.0.0.1", "", true},
		{"tcp " + web + " 3000000", me, "127.0.0.1", "", true},
		{"udp " + packets.LocalAddr().String() + " 4000", me, "127.0.0.1", "", true},
		{"dial " + web, "", "", "", true},
		{"dial " + other.Addr().String(), "", "", "", true},
		{"tcp " + other.Addr().String() + " 1", "", "", "E", true},
		{"tcp 127.0.0.1:1 1", "", "", "refused", false},
		{"dial 127.0.0.1:1", "", "", "refused", false},
		{"closed dial " + web, "", "", "", true},
		{"closed udp " + silent.LocalAddr().String() + " 1", "", "", "timeout", false},
		{"udp 127.0.0.1:1 1", "", "", "refused", false},
		{"sctp 127.0.0.1:1", "", "", "none of", false},
		{"tcp " + web + " many", "", "", "many", false},
	} {
		got := tryAll([]string{"dial " + web, want.line})
		if len(got) != 2 || got[1].Line != want.line {
			t.Fatalf("%s: %+v", want.line, got)
		}
		g := got[1]
		if g.Name != want.name || g.Client != want.client || g.Connected != want.connected || (g.Error == "") != (want.err == "") ||
			!strings.Contains(g.Error, strings.TrimPrefix(want.err, "E")) || want.name != "" && g.PodIP != "10.42.0.5" {
			t.Errorf("%d: %+v, want %+v", i, g, want)
		}
	}
}
