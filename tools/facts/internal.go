package main

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"reflect"
	"sort"
	"strings"

	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationinstall "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
)

// internals collects the structs that a server uses inside, next to those of the API: refusals show values in the
// JSON of the inner ones, which have no tags.
type internals struct {
	lines map[string][]string
}

// internal writes the inner structs below the fields of every kind.
func internal(out io.Writer, order []schema.GroupVersionKind) {
	scheme := legacyscheme.Scheme
	apiextensionsinstall.Install(scheme)
	apiregistrationinstall.Install(scheme)
	all := internals{lines: map[string][]string{}}
	for _, gvk := range order {
		inner := schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind}
		if gvk.Group == "autoscaling" && gvk.Version == "v1" || strings.HasSuffix(gvk.Kind, "List") || !scheme.Recognizes(inner) {
			continue
		}
		own, err := scheme.New(inner)
		must(err)
		public, err := scheme.New(gvk)
		must(err)
		all.add(reflect.TypeOf(own).Elem(), reflect.TypeOf(public).Elem(), nil)
	}
	fmt.Fprintln(out, "# Made by `cargo xtask facts` from the published modules; do not edit. The form is explained in internal.rs.")
	names := make([]string, 0, len(all.lines))
	for name := range all.lines {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintln(out, name)
		for _, line := range all.lines[name] {
			fmt.Fprintln(out, "\t"+line)
		}
	}
}

// tagged reports whether a type has the same JSON inside and outside.
func tagged(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return true
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("json") != "" {
			return true
		}
	}
	return false
}

func (s internals) add(own, public, parent reflect.Type) string {
	name := path.Base(own.PkgPath()) + "." + own.Name()
	if _, known := s.lines[name]; known || tagged(own) {
		return name
	}
	s.lines[name] = []string{}
	s.lines[name] = s.fields(own, public, parent)
	return name
}

func (s internals) fields(own, public, parent reflect.Type) []string {
	var lines []string
	for i := range own.NumField() {
		field := own.Field(i)
		if field.Anonymous {
			switch {
			case field.Name == "TypeMeta":
			case field.Name == "ObjectMeta":
				lines = append(lines, "*\tmetadata\t*\t")
			case tagged(field.Type):
				lines = append(lines, "*\t\t*\t")
			default:
				s.add(field.Type, public, parent)
				lines = append(lines, s.fields(field.Type, public, parent)...)
			}
			continue
		}
		name, outer, from := "-", reflect.Type(nil), public
		if found, ok := find(public, field.Name); ok {
			name, outer = found.name, found.field
		} else if parent != nil {
			if found, ok := find(parent, field.Name); ok {
				name, outer, from = "^"+found.name, found.field, parent
			}
		}
		form, below := s.form(field.Type, outer, from)
		lines = append(lines, strings.Join([]string{field.Name, name, form, below}, "\t"))
	}
	return lines
}

// form returns how a value is written when it is absent, and the struct in it.
func (s internals) form(own, public, from reflect.Type) (string, string) {
	inner, outer := own, public
	for {
		switch inner.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if tagged(inner) {
				break
			}
			if outer != nil && outer.Kind() == reflect.Pointer && inner.Kind() != reflect.Pointer {
				outer = outer.Elem()
			}
			if outer != nil && outer.Kind() != inner.Kind() {
				outer = nil
			}
			inner = inner.Elem()
			if outer != nil {
				outer = outer.Elem()
			}
			continue
		}
		break
	}
	if outer != nil && outer.Kind() == reflect.Pointer {
		outer = outer.Elem()
	}
	below := ""
	if inner.Kind() == reflect.Struct && !tagged(inner) && outer != nil && outer.Kind() == reflect.Struct {
		below = s.add(inner, outer, from)
	}
	switch own.Kind() {
	case reflect.Pointer, reflect.Interface:
		return "null", below
	case reflect.Slice:
		return "list", below
	case reflect.Map:
		return "map", below
	case reflect.Struct:
		if below != "" {
			return "{}", below
		}
	}
	zero, err := json.Marshal(reflect.Zero(own).Interface())
	must(err)
	return string(zero), below
}

type public struct {
	name  string
	field reflect.Type
}

// find returns the field of the API with the same name, whatever its case, also in embedded structs.
func find(t reflect.Type, name string) (public, bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" && field.Type.Kind() == reflect.Struct {
			if found, ok := find(field.Type, name); ok {
				return found, true
			}
		} else if strings.EqualFold(field.Name, name) {
			return public{tag, field.Type}, true
		}
	}
	return public{}, false
}
