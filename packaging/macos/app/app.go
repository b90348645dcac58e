// Package app makes Kith.app, the bundle that a Mac shows as one program: the tray, and in it kithd, kith, the file by which launchd starts
// kithd, and the icon. All of it is signed ad hoc. It must not know how the bundle gets to people.
package app

import (
	"bytes"
	"debug/macho"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"howett.net/plist"

	"kith.dev/packaging/macos/codesign"
	"kith.dev/packaging/macos/fat"
	"kith.dev/packaging/macos/icns"
)

// Bundle is the content of Kith.app by its path in there, such as Contents/Info.plist.
type Bundle map[string][]byte

// The programs; the first is the bundle's own.
const own = "kith-tray"

var helpers = []string{"kith", "kithd"}

// processors are those that each program is for.
var processors = []macho.Cpu{macho.CpuAmd64, macho.CpuArm64}

// Mode is the mode of a file of the bundle.
func Mode(path string) fs.FileMode {
	if strings.HasPrefix(path, programs) {
		return 0o755
	}
	return 0o644
}

const (
	contents  = "Contents/"
	programs  = contents + "MacOS/"
	infoPath  = contents + "Info.plist"
	icon      = contents + "Resources/Kith.icns"
	agentPath = contents + "Library/LaunchAgents/" + Agent + ".plist"
	sealPath  = contents + "_CodeSignature/CodeResources"
)

// id is the identifier in the signature of a program.
func id(program string) string {
	if program == own {
		return ID
	}
	return "dev.kith." + program
}

// Make makes the bundle. thin gives a program for a processor, "amd64" or "arm64"; pngs are the icon; license goes in too.
func Make(version string, thin func(program, arch string) ([]byte, error), pngs [][]byte, license []byte) (Bundle, error) {
	b := Bundle{contents + "PkgInfo": []byte("APPL????"), contents + "Resources/LICENSE.txt": license}
	for path, content := range map[string]func() ([]byte, error){
		infoPath: func() ([]byte, error) { return info(version) }, agentPath: agent, icon: func() ([]byte, error) { return icns.Make(pngs...) },
	} {
		made, err := content()
		if err != nil {
			return nil, err
		}
		b[path] = made
	}
	signed := map[string][]codesign.Signed{}
	for _, name := range append(slices.Clone(helpers), own) {
		var both [][]byte
		for _, arch := range []string{"amd64", "arm64"} {
			p, err := thin(name, arch)
			if err != nil {
				return nil, err
			}
			both = append(both, p)
		}
		joined, err := fat.Join(both...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s := codesign.Seal{ID: id(name)}
		if name == own { // the last: it seals all the others
			if b[sealPath], err = seal(b.sealed(), signed); err != nil {
				return nil, err
			}
			s.Info, s.Resources = b[infoPath], b[sealPath]
		}
		if b[programs+name], err = codesign.Sign(joined, s); err != nil {
			return nil, err
		}
		if signed["MacOS/"+name], err = codesign.Check(b[programs+name], s); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// sealed are the files below Contents that are listed as they are: no programs, and not the list.
func (b Bundle) sealed() map[string][]byte {
	out := map[string][]byte{}
	for path, content := range b {
		if Mode(path) == 0o644 && path != sealPath {
			out[path[len(contents):]] = content
		}
	}
	return out
}

// Check looks at a bundle as it came out of an image: that all that belongs there is there and nothing else, every signature fits, every program is for both
// processors, and launchd and the bundle name programs and an icon that are there.
func Check(b Bundle) error {
	want := []string{contents + "PkgInfo", contents + "Resources/LICENSE.txt", infoPath, icon, agentPath, sealPath, programs + own}
	for _, h := range helpers {
		want = append(want, programs+h)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(b)); !slices.Equal(got, want) {
		return fmt.Errorf("the bundle has the files %q, not %q", got, want)
	}
	signed := map[string][]codesign.Signed{}
	for _, name := range append(slices.Clone(helpers), own) {
		s := codesign.Seal{ID: id(name)}
		if name == own {
			s.Info, s.Resources = b[infoPath], b[sealPath]
		}
		all, err := codesign.Check(b[programs+name], s)
		if err != nil {
			return err
		}
		if len(all) != len(processors) {
			return fmt.Errorf("%s has the programs of %d processors", name, len(all))
		}
		for i, cpu := range processors {
			if all[i].CPU != cpu {
				return fmt.Errorf("%s is for %v where it should be for %v", name, all[i].CPU, cpu)
			}
		}
		if name != own {
			signed["MacOS/"+name] = all
		}
	}
	resources, err := seal(b.sealed(), signed)
	if err != nil {
		return err
	}
	if !bytes.Equal(resources, b[sealPath]) {
		return fmt.Errorf("%s does not list what is in the bundle", sealPath)
	}
	if _, err := icns.Sizes(b[icon]); err != nil {
		return err
	}
	return b.named()
}

// named looks whether what the plists name is there.
func (b Bundle) named() error {
	var info struct {
		CFBundleExecutable, CFBundleIconFile, CFBundleIdentifier string
	}
	if _, err := plist.Unmarshal(b[infoPath], &info); err != nil {
		return fmt.Errorf("%s: %w", infoPath, err)
	}
	var agent struct {
		Label, BundleProgram        string
		AssociatedBundleIdentifiers []string
	}
	if _, err := plist.Unmarshal(b[agentPath], &agent); err != nil {
		return fmt.Errorf("%s: %w", agentPath, err)
	}
	for _, path := range []string{programs + info.CFBundleExecutable, contents + "Resources/" + info.CFBundleIconFile + ".icns", agent.BundleProgram, contents + "Library/LaunchAgents/" + agent.Label + ".plist"} {
		if b[path] == nil {
			return fmt.Errorf("%s is named, and is not in the bundle", path)
		}
	}
	if !slices.Equal(agent.AssociatedBundleIdentifiers, []string{info.CFBundleIdentifier}) {
		return fmt.Errorf("%s is for %q, the bundle is %q", agentPath, agent.AssociatedBundleIdentifiers, info.CFBundleIdentifier)
	}
	return nil
}
