//go:build lab && soak

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kith.dev/test/images"
	"kith.dev/test/lab"
)

// project is a program of nine files and its Makefile, in the folder that it is called in.
const project = `for i in 1 2 3 4 5 6 7 8; do printf '#include <stdio.h>\nint part%d(void) { return printf("part %d of %%s\\n", __FILE__); }\n' $i $i >part$i.c; done
{ for i in 1 2 3 4 5 6 7 8; do echo "int part$i(void);"; done; echo 'int main(void) {'; for i in 1 2 3 4 5 6 7 8; do echo "part$i();"; done; echo 'return 0; }'; } >main.c
printf 'CC = gcc\napp: $(patsubst %%.c,%%.o,$(wildcard *.c))\n\tgcc -o $@ $^\n' >Makefile
`

// rsync is the one of the image's files, for a laptop that has none.
const rsync = `#!/bin/sh
exec /opt/dev/lib/*/ld-linux-*.so.* --library-path "$(echo /opt/dev/lib/*-linux-gnu):$(echo /opt/dev/usr/lib/*-linux-gnu)" /opt/dev/usr/bin/rsync "$@"
`

// TestDevelopmentJobs: what docs/develop.md tells, a compiler, a folder, a compose file and a builder of images, from alice's laptop at bob's.
func TestDevelopmentJobs(t *testing.T) {
	l := laptops(t, lab.Options{Laptops: 2})
	alice, bob := l.Laptop("alice"), l.Laptop("bob")
	befriend(t, alice, bob)
	archive, root, err := images.BuildTools(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if _, said, err := alice.ExecInput(t.Context(), bytes.NewReader(image), "kith", "image", "load"); err != nil {
		t.Fatal(err, said)
	}
	files, err := exec.CommandContext(t.Context(), "tar", "-C", root, "-cf", "-", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	// A laptop that has distcc, gcc and rsync: the same that the image has.
	if _, said, err := alice.ExecInput(t.Context(), bytes.NewReader(files), "sh", "-c", "mkdir -p /opt/dev && tar -C /opt/dev -xf - && cp -a /dev/null /opt/dev/dev/"); err != nil {
		t.Fatal(err, said)
	}
	for name, text := range map[string]string{"rsync": rsync, "there": example(t, "there")} {
		if _, said, err := alice.ExecInput(t.Context(), strings.NewReader(text), "sh", "-c", `cat > "/usr/local/bin/$0" && chmod +x "/usr/local/bin/$0"`, name); err != nil {
			t.Fatal(err, said)
		}
	}
	shell := func(t *testing.T, text string) string {
		t.Helper()
		out, said, err := alice.Exec(t.Context(), "sh", "-c", text)
		if err != nil {
			fail(t, "%v\n%s\n%s", err, out, said)
		}
		return out
	}
	kith(t, alice, "kubectl", "create", "namespace", "dev")
	kith(t, alice, "offload", "dev")

	t.Run("distcc", func(t *testing.T) {
		apply(t, alice, example(t, "distcc.yaml"))
		if p := waitReady(t, alice, 1, "-n", "dev", "-l", "app=distccd")[0]; p.Spec.NodeName != "kith-bob" {
			t.Fatalf("distccd is on %s", p.Spec.NodeName)
		}
		eventually(t, 20*time.Second, "distccd listens", func() string {
			if said := kith(t, alice, "kubectl", "-n", "dev", "logs", "deployment/distccd"); !strings.Contains(said, "preforking daemon started") {
				return instead(said)
			}
			return ""
		})
		address := kith(t, alice, "kubectl", "-n", "dev", "get", "service", "distccd", "-o", "jsonpath={.spec.clusterIP}")
		out := shell(t, fmt.Sprintf("mkdir -p /opt/dev/tmp/project && cd /opt/dev/tmp/project && %s\nchroot /opt/dev bash -c 'cd /tmp/project && DISTCC_HOSTS=%s/4 DISTCC_FALLBACK=0 make -j4 CC=\"distcc gcc\" && ./app'", project, address))
		if !strings.Contains(out, "part 8 of part8.c\n") {
			t.Errorf("the program: %s", out)
		}
		said := kith(t, alice, "kubectl", "-n", "dev", "logs", "deployment/distccd")
		if strings.Count(said, " COMPILE_OK exit:0 ") != 9 {
			t.Errorf("distccd: %s", said)
		}
		t.Log(out, said)
	})
	t.Run("a folder that follows", func(t *testing.T) {
		apply(t, alice, example(t, "dev.yaml"))
		if p := waitReady(t, alice, 1, "-n", "dev", "--field-selector", "metadata.name=dev")[0]; p.Spec.NodeName != "kith-bob" {
			t.Fatalf("it is on %s", p.Spec.NodeName)
		}
		const in = "mkdir -p /root/project && cd /root/project && "
		shell(t, in+project)
		t.Log(shell(t, in+"there make && ls && ./app"))
		if again := shell(t, in+"touch part1.c && there make"); strings.Count(again, "-c -o ") != 1 {
			t.Errorf("one file is newer: %s", again)
		}
		if out := shell(t, in+"there sh -c 'echo $KUBERNETES_SERVICE_HOST; exit 3'; echo $?"); !strings.HasSuffix(out, "\n3\n") {
			t.Errorf("its exit code: %s", out)
		}
		if out := shell(t, in+"rm part8.c && there ls"); strings.Contains(out, "part8.c") {
			t.Errorf("what is removed at home is there: %s", out)
		}
		if out := shell(t, in+"there sh -c 'echo there > both; rm part7.c' && cat both && ls"); !strings.HasPrefix(out, "there\n") || !strings.Contains(out, "part7.c") {
			t.Errorf("what the command wrote, and what it removed: %s", out)
		}
		if out := shell(t, in+"echo home > both && there cat both"); out != "home\n" {
			t.Errorf("home's file: %s", out)
		}
	})
	kith(t, alice, "kubectl", "create", "namespace", "shop")
	kith(t, alice, "offload", "shop")
	t.Run("compose", func(t *testing.T) {
		apply := func(file string) {
			text, err := os.ReadFile(filepath.Join("testdata", "develop", file))
			if err != nil {
				t.Fatal(err)
			}
			if out, err := alice.KubectlInput(t.Context(), bytes.NewReader(text), "apply", "-n", "shop", "-f", "-"); err != nil {
				t.Fatal(out, err)
			}
		}
		apply("kompose.yaml")
		for _, p := range waitReady(t, alice, 2, "-n", "shop") {
			if web := strings.HasPrefix(p.Metadata.Name, "web-"); web != (p.Spec.NodeName == "alice") {
				t.Errorf("%s is on %s", p.Metadata.Name, p.Spec.NodeName)
			}
		}
		address := kith(t, alice, "kubectl", "-n", "shop", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
		eventually(t, 20*time.Second, "web asks api by its name", func() string {
			if out := shell(t, fmt.Sprintf("curl -s 'http://%s:8080/call?url=http://api:8081/?env'", address)); !strings.Contains(out, `\"name\": \"api-`) || !strings.Contains(out, "GREETING=hello") {
				return instead(out)
			}
			return ""
		})
		kith(t, alice, "kubectl", "-n", "shop", "delete", "deployment", "api")
		apply("kompose-claim.yaml")
		eventually(t, 30*time.Second, "a volume keeps it at home", func() string {
			out := kith(t, alice, "why", "-n", "shop", "deployment/api")
			if !strings.Contains(out, "it has a volume claim, and volumes of namespace shop are at home") {
				return instead(out)
			}
			return ""
		})
	})
	t.Run("a builder is refused at a peer", func(t *testing.T) {
		for file, said := range map[string]string{
			"buildx.yaml":          "securityContext.privileged is not allowed at this provider's pod security level baseline",
			"buildx-rootless.yaml": "this provider's pod security level is baseline: forbidden AppArmor profile",
		} {
			text, err := os.ReadFile(filepath.Join("testdata", "develop", file))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, alice, string(text))
			name := strings.TrimSuffix(file, ".yaml")
			eventually(t, 30*time.Second, name+" is refused", func() string {
				if out := kith(t, alice, "why", "-n", "dev", "deployment/"+name); !strings.Contains(out, "bob refuses it: PodSecurity\n") || !strings.Contains(out, said) {
					return instead(out)
				}
				return ""
			})
			t.Log(kith(t, alice, "why", "-n", "dev", "deployment/"+name))
		}
	})
}

// example is a file of examples/.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
