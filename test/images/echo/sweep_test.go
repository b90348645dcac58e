package main

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestASweepFindsWhatOpensMeanwhile(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo([]byte(`{"name":"another"}`), from)
		}
	}()
	mine, err := net.ListenPacket("udp", "127.0.0.1:0") // it answers in this host's name
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	go echoPackets(mine)
	late, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := late.Addr().String()
	late.Close()
	opened := make(chan net.Listener, 1)
	time.AfterFunc(500*time.Millisecond, func() {
		l, _ := net.Listen("tcp", at)
		opened <- l
	})
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for _, want := range []struct {
		target   string
		answered bool
		by       string
	}{
		{"udp:" + packets.LocalAddr().String(), true, "another at "},
		{"cast:" + mine.LocalAddr().String(), false, ""},
		{"tcp:127.0.0.1:1", false, ""},
		{"sctp:127.0.0.1:1", false, ""},
		{"tcp:" + at, true, ""},
	} {
		group.Go(func() {
			s := Swept{Target: want.target}
			s.run(ctx, begin)
			if s.Tries < 2 || (s.Answered > 0) != want.answered || !strings.HasPrefix(s.By, want.by) || want.answered && s.First == 0 {
				t.Errorf("%+v, want %+v", s, want)
			}
		})
	}
	group.Wait()
	if l := <-opened; l != nil {
		l.Close()
	}
}
