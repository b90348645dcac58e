package main

import (
	"os"
	"strings"
	"testing"

	"kith.dev/core/base/places"
	"kith.dev/daemon/config"
)

func TestTheLogIsInAFileWhereTheServiceManagerKeepsNone(t *testing.T) {
	mac, linux := places.Of("darwin", t.TempDir()), places.Of("linux", t.TempDir())
	launchd := func(name string) string { return map[string]string{"XPC_SERVICE_NAME": "dev.kith.kithd"}[name] }
	terminal := func(name string) string { return map[string]string{"XPC_SERVICE_NAME": "0"}[name] }
	for what, c := range map[string]struct {
		at     places.Places
		getenv func(string) string
	}{"in a terminal of a Mac": {mac, terminal}, "on Linux": {linux, launchd}} {
		if to, err := logTo(c.at, c.getenv); err != nil || to != os.Stderr {
			t.Errorf("%s: %v %v", what, to, err)
		}
	}
	to, err := logTo(mac, launchd)
	if err != nil {
		t.Fatal(err)
	}
	logger(config.Default(), to).Info("hello")
	if b, err := os.ReadFile(mac.Log); err != nil || !strings.Contains(string(b), "msg=hello") {
		t.Errorf("%q %v", b, err)
	}
}
