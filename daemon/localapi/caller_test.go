package localapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
)

// TestMain lets this test program be its own foreign user: started with KITH_TEST_CALL it makes one call and says
// how it went.
func TestMain(m *testing.M) {
	socket := os.Getenv("KITH_TEST_CALL")
	if socket == "" {
		os.Exit(m.Run())
	}
	var err error
	if path := os.Getenv("KITH_TEST_PATH"); path != "" {
		os.Stdout.WriteString(get(socket, path))
		os.Exit(0)
	}
	_, err = client.New(socket).Version(context.Background())
	var e *api.Error
	if errors.As(err, &e) {
		os.Stdout.WriteString(string(e.Code) + "\n" + e.Error() + "\n")
	} else {
		os.Stdout.WriteString("ok\n")
	}
	os.Exit(0)
}

// versionOnly is a Backend for calls that must not get further than Version.
type versionOnly struct{ Backend }

func (versionOnly) Version(context.Context) (api.Version, error) { return api.Version{}, nil }

// get gives the status of a plain GET.
func get(socket, path string) string {
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := c.Get("http://kith" + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	return resp.Status
}

// callAs calls a server for group as another user, with the socket open to all, so that the server must decide.
func callAs(t *testing.T, group string, who *syscall.Credential, env ...string) (code, text string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	path := socketPath(t)
	os.Chmod(strings.TrimSuffix(path, "/run/kith.sock"), 0o755)
	s := New(Options{Socket: path, Group: group, Backend: versionOnly{}, Events: NewBroker(1), Log: quiet})
	s.HandleRoot("GET /root", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	defer func() { stop(); <-ended }()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	// The test program itself lies in a directory that only root may enter, so it is handed over as an open file.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = append(env, "KITH_TEST_CALL="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	code, text, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return code, text
}

func TestStrangerIsRefusedAndToldWhomToAsk(t *testing.T) {
	code, text := callAs(t, "kith", &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: false})
	if code != string(api.CodeForbidden) || !strings.Contains(text, "usermod -aG kith nobody") {
		t.Errorf("%s: %s", code, text)
	}
}

func TestProcessOfTheGroupMayCall(t *testing.T) {
	g, err := user.LookupGroup("daemon")
	if err != nil {
		t.Skip(err)
	}
	gid, _ := strconv.ParseUint(g.Gid, 10, 32)
	if code, text := callAs(t, "daemon", &syscall.Credential{Uid: 65534, Gid: uint32(gid)}); code != "ok" {
		t.Errorf("%s: %s", code, text)
	}
}

func TestRootsOwnCallsAreNotForTheGroup(t *testing.T) {
	g, err := user.LookupGroup("daemon")
	if err != nil {
		t.Skip(err)
	}
	gid, _ := strconv.ParseUint(g.Gid, 10, 32)
	for status, who := range map[string]*syscall.Credential{
		"403 Forbidden": {Uid: 65534, Gid: uint32(gid)},
		"200 OK":        {},
	} {
		if code, _ := callAs(t, "daemon", who, "KITH_TEST_PATH=/root"); code != status {
			t.Errorf("as user %d: %s, want %s", who.Uid, code, status)
		}
	}
}

func TestPermissionTable(t *testing.T) {
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(nobody.Uid)
	gid, _ := strconv.Atoi(nobody.Gid)
	own, err := user.LookupGroupId(nobody.Gid)
	if err != nil {
		t.Skip(err)
	}
	for name, tc := range map[string]struct {
		who   credentials
		group string
		want  bool
	}{
		"root":                          {credentials{uid: 0, gid: 0}, "no-such-group", true},
		"the daemon's own user":         {credentials{uid: os.Geteuid(), gid: 4711}, "no-such-group", true},
		"process in the group":          {credentials{uid: 4711, gid: gid}, own.Name, true},
		"user listed in the group":      {credentials{uid: uid, gid: 4711}, own.Name, true},
		"user of another group":         {credentials{uid: uid, gid: gid}, "root", false},
		"group that does not exist":     {credentials{uid: uid, gid: gid}, "no-such-group", false},
		"no group":                      {credentials{uid: uid, gid: gid}, "", false},
		"user that nobody has heard of": {credentials{uid: 4711, gid: 4711}, "root", false},
	} {
		if got, err := memberOf(tc.who, tc.group); got != tc.want || err != nil {
			t.Errorf("%s: %v %v, want %v", name, got, err, tc.want)
		}
	}
}
